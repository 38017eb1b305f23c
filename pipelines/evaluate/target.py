"""The target task: generated groups, scored as in the paper's Figure 4, and the z of a Free
Transformer.

Of z: what it says on its own, where it costs bits, and how well its own decoder rebuilds a sequence
from it. This is measured on new sequences of the process, which no training has seen.
"""

from dataclasses import replace
from math import isnan, log2
from statistics import fmean

import torch
from torch import Generator, Tensor

from ftmodel.analysis import use_of_z
from ftmodel.designs.hinge import LN2
from ftmodel.inference.bounds import encode
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import FromPrior, Noise
from ftmodel.mapper import pack_bits
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.synthetic.target import (
    ARROW,
    LENGTH,
    LETTERS,
    PROMPT,
    STARTS,
    Scores,
    decode,
    is_valid,
    mean_position,
    noise_overlap,
    sample_with_starts,
    score_groups,
)
from pipelines.artifacts.packing import rows_at_once
from pipelines.artifacts.results import (
    Between,
    ByOffset,
    LatentDetails,
    LatentFigures,
    Reconstruction,
)
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate.bounds import DocumentScores
from pipelines.evaluate.measurement import Context

TRAINED = 4  # sequences that the probe is trained on for each that it is evaluated on
RECONSTRUCTED = 512  # at most
GROUPS_SHOWN = 2

Groups = list[list[str]]


def measure_groups(context: Context) -> tuple[Scores, Scores | None, dict[str, Groups]]:
    """Score groups with fresh z, and with pinned z, if there are any; and show some of each."""
    fresh, pinned = target_groups(context.model, context.settings, context.device)
    shown = {"fresh": fresh[:GROUPS_SHOWN]}
    if not pinned:
        return score_groups(fresh), None, shown
    shown["pinned"] = pinned[:GROUPS_SHOWN]
    return score_groups(fresh), score_groups(pinned), shown


def target_groups(
    model: FreeTransformer, settings: EvaluationConfig, device: torch.device
) -> tuple[Groups, Groups]:
    """Groups that share a prompt: first with a z, or random prefix, for each sequence, then with
    one for a group; a model without either has no second groups.
    """
    rng = generator(settings.seed, Purpose.GROUPS)
    size = settings.group_size
    letters = torch.randint(len(LETTERS), (settings.groups, 1), generator=rng)
    letters = letters.repeat_interleave(size, dim=0)
    prompt = torch.cat((letters, torch.full_like(letters, ARROW)), dim=1).to(device)

    def sample(share_z: int) -> Groups:
        sequences = generate(model, prompt, LENGTH, generator=rng, z=FromPrior(share_z)).cpu()
        return [[decode(sequence) for sequence in group] for group in sequences.split(size)]

    fresh = sample(share_z=1)
    pinned = sample(share_z=size) if model.noise_source else []
    return fresh, pinned


def measure_latent(context: Context, scores: DocumentScores) -> tuple[LatentFigures, LatentDetails]:
    assert scores.elbo is not None and scores.exact is not None
    elbo_gap = (scores.elbo - scores.exact).mean().item() / LN2
    return latent_figures(context.model, context.settings, context.device, elbo_gap)


def latent_figures(
    model: FreeTransformer, settings: EvaluationConfig, device: torch.device, elbo_gap: float
) -> tuple[LatentFigures, LatentDetails]:
    """Measure z on the target task; all information is in bits. ``elbo_gap``, the mean over
    sequences of ELBO − exact NLL, bounds the aggregate posterior's KL from above.
    """
    rng = generator(settings.seed, Purpose.LATENT)
    rows, starts = sample_with_starts(settings.probe_sequences, rng)
    shape = len(rows), model.config.context, model.config.latent_bits
    o, _ = encoded(model, rows, torch.zeros(shape), settings, device)
    probe = use_of_z.fit(o.sigmoid(), starts, STARTS)

    rows, starts = sample_with_starts(max(2, settings.probe_sequences // TRAINED), rng)
    noise = torch.rand(len(rows), *shape[1:], generator=rng)
    o, kl = encoded(model, rows, noise, settings, device)
    bits = (noise < o.sigmoid()).long()
    result = use_of_z.evaluate(probe, bits, starts)
    # the probe compares with fair bits
    at_least = result.aggregate_bits if model.config.latent.uniform_prior else None
    figures = LatentFigures(
        start_bits=result.label_bits[-1],
        start_entropy=log2(STARTS),
        aggregate_bits=Between(at_least, elbo_gap),
        reconstruction=reconstruction(
            model, rows[:RECONSTRUCTED], bits[:RECONSTRUCTED], rng, device
        ),
    )
    details = LatentDetails([*result.label_bits], [*result.next_bits])
    if not model.config.latent.shared_codes:  # else KL is where spans begin
        # the token that the target begins with is predicted one position before it
        offsets = use_of_z.mean_by_offset(kl.sum(-1) / LN2, PROMPT - 1 + starts)
        details = replace(details, from_start=ByOffset(*offsets))
    return figures, details


def encoded(
    model: FreeTransformer,
    rows: Tensor,
    noise: Tensor,
    settings: EvaluationConfig,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """The encoder's logits o for sequences (n, T + 1), whose last token is not read, and the KL of
    each bit, nats, after z sampled with ``noise``; (n, T, H) each.
    """
    size = rows_at_once(settings.batch_tokens, model.config.context)
    logits, kl = [], []
    for inputs, draws in zip(rows[:, :-1].split(size), noise.split(size), strict=True):
        o, kl_of_bits = encode(model, inputs.to(device), draws.to(device))
        logits.append(o)
        kl.append(kl_of_bits)
    return torch.cat(logits).cpu(), torch.cat(kl).cpu()


def reconstruction(
    model: FreeTransformer, rows: Tensor, bits: Tensor, rng: Generator, device: torch.device
) -> Reconstruction:
    """Rebuild sequences (n, 66) from their letter, '>' and bits of z (n, 65, H): the share that is
    valid; the mean distance between the target's mean positions, in characters, where both have the
    letter; the mean Jaccard overlap of the positions of '!'.
    """
    codes = pack_bits(bits > 0)  # of the prompt too
    source = Noise(torch.zeros(bits.shape), codes)
    copies = generate(model, rows[:, :PROMPT].to(device), LENGTH, generator=rng, z=source).cpu()
    valid, distances, overlaps = [], [], []
    for row, copy in zip(rows, copies, strict=True):
        letter = decode(row[:1])
        old, new = decode(row[PROMPT:]), decode(copy[PROMPT:])
        valid.append(is_valid(new, letter))
        position, position_of_copy = mean_position(old, letter), mean_position(new, letter)
        if position is not None and position_of_copy is not None:
            distances.append(abs(position_of_copy - position))
        if not isnan(overlap := noise_overlap([old, new])):
            overlaps.append(overlap)
    return Reconstruction(
        valid=fmean(valid),
        distance=fmean(distances) if distances else None,
        noise=fmean(overlaps) if overlaps else None,
    )
