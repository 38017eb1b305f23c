"""How much a run's evaluation does, counted before it begins: by default no more than its training.

`auto` scores a share of the tokens that the run trained on, whatever its κ, so that all arms that
are compared score the same text. A run's particles are then as many as its training paid for. Only
counts decide, never a clock: the results are the same on every machine.
"""

from dataclasses import replace

from ftmodel.analysis.calibration import MIN_PARTICLES, SHARES
from ftmodel.analysis.work import TRAINING, EvaluationWork, particle_passes
from ftmodel.inference.sequence_bound import default_proposal
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.data import TextData
from pipelines.config.schema import AUTO, EvaluationConfig
from pipelines.evaluate.bounds import calibration_chunks, with_proposal
from pipelines.evaluate.codes import SWAP_DRAWS
from pipelines.evaluate.generations import LETTERS, PINNED, TEXT, Sampling
from pipelines.evaluate.measurement import Allowance
from pipelines.evaluate.target import RECONSTRUCTED, TRAINED

TRAINED_PER_SCORED = 64  # tokens
MIN_TOKENS, MAX_TOKENS = 4096, 65_536  # that `auto` scores
SWAP_SOURCES = 4  # of z
# 4 where z says little, 64 where it says much: LOG.md, 2026-11-27
USUAL_PARTICLES = 16


def settled(spec: RunSpec) -> EvaluationConfig:
    """The run's settings of evaluation, with numbers in place of what they leave to the run."""
    settings = with_proposal(spec.experiment.evaluation, spec.run, spec.config.latent)
    if settings.tokens != AUTO:
        return settings
    trained = spec.run.tokens // TRAINED_PER_SCORED
    return replace(settings, tokens=min(MAX_TOKENS, max(MIN_TOKENS, trained)))


def allowance(spec: RunSpec, settings: EvaluationConfig) -> Allowance:
    """What the measurement of a model may cost; its smaller budgets share it evenly."""
    trained = spec.steps * spec.batch_tokens / len(spec.budgets)
    share = default_proposal(spec.config.latent, spec.run.kappa_bits or 0)
    return Allowance(evaluation_work(spec, settings), TRAINING * trained, share)


def evaluation_work(spec: RunSpec, settings: EvaluationConfig) -> EvaluationWork:
    """The work of measuring the run's model with ``settled`` settings, if there is enough text."""
    config = spec.config
    tokens = settings.tokens if isinstance(settings.tokens, int) else MAX_TOKENS
    read = generated = 0
    z_filtered = bool(config.latent_bits) and particle_passes(config) > 0
    if isinstance(spec.data, TextData):
        generated = sampled_tokens(TEXT, bool(config.noise_width))
        continued = settings.steering_z * settings.steering_draws * settings.steering_length
        generated += settings.steering_prompts * continued
        if config.latent_bits:
            read = settings.bit_tokens + SWAP_SOURCES * SWAP_DRAWS * settings.swap_tokens
    elif spec.data.source == "target":
        groups = settings.groups * settings.group_size
        generated = sampled_tokens(LETTERS, bool(config.noise_width)) + groups * config.context
        if config.latent_bits:
            probed = settings.probe_sequences + settings.probe_sequences // TRAINED
            read = probed * config.context // 2  # by the lower half and the encoder
            generated += (groups + RECONSTRUCTED) * config.context
    return EvaluationWork(
        config,
        scored_tokens=tokens,
        calibration_tokens=calibration_chunks(tokens, config.context) * config.context,
        filters=settings.filters,
        iwae_samples=settings.iwae_samples,
        own_text_tokens=settings.own_text_rows * config.context if z_filtered else 0,
        read_tokens=read,
        generated_tokens=generated,
    )


def expected_passes(spec: RunSpec) -> float:
    """The work of the run's evaluation, of all its budgets, if a calibration does as usual."""
    settings = settled(spec)
    allowed = allowance(spec, settings)
    work, shares = allowed.work, 0
    if isinstance(settings.particles, int):
        particles = settings.particles
    else:
        filtered = spec.config.latent_bits and not spec.config.latent.one_code
        shares = len(SHARES) if filtered and settings.proposal is None else 1
        particles = min(USUAL_PARTICLES, settings.max_particles or USUAL_PARTICLES)
        if settings.max_particles is None:
            shares, affordable = work.affordable(allowed.passes, shares, particles)
            particles = affordable or MIN_PARTICLES
    return work.passes(particles, shares) * len(spec.budgets)


def sampled_tokens(sampling: Sampling, noisy: bool) -> int:
    """Tokens of the samples to look at: with each pinned z and with fresh z, or of a baseline."""
    rows = sampling.draws * (PINNED + 1 if noisy else 1)
    return sampling.prompts * rows * sampling.new
