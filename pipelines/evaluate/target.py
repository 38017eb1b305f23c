"""The z of a Free Transformer on the target task: what it says on its own, where it costs bits, and
how well its own decoder rebuilds a sequence from it.

All is measured on new sequences of the process, which no training has seen.
"""

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
from pipelines.evaluate.measurement import Context

TRAINED = 4  # sequences that the probe is trained on for each that it is evaluated on
RECONSTRUCTED = 512  # at most


def target_latent_applies(context: Context) -> bool:
    return context.data.source == "target" and context.model.latent is not None


def measure_target_latent(context: Context) -> None:
    elbo, exact = context.scores.elbo, context.scores.exact
    assert elbo is not None and exact is not None
    context.evaluation.latent, context.details.latent = latent_figures(
        context.model, context.settings, context.device, (elbo - exact).mean().item() / LN2
    )


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
    parts = zip(rows[:, :-1].split(size), noise.split(size), strict=True)
    logits, kl = zip(*(encode(model, *(x.to(device) for x in part)) for part in parts), strict=True)
    return torch.cat(logits).cpu(), torch.cat(kl).cpu()


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
    kl_bits = kl.sum(-1) / LN2
    # the probe compares with fair bits
    uniform = model.config.latent.uniform_prior
    # the token that the target begins with is predicted one position before it
    offsets = use_of_z.mean_by_offset(kl_bits, PROMPT - 1 + starts)
    own = not model.config.latent.shared_codes  # else KL is where spans begin
    some = slice(RECONSTRUCTED)
    figures = LatentFigures(
        start_bits=result.label_bits[-1],
        start_entropy=log2(STARTS),
        aggregate_bits=Between(result.aggregate_bits if uniform else None, elbo_gap),
        reconstruction=reconstruction(model, rows[some], bits[some], rng, device),
    )
    from_start = ByOffset(*offsets) if own else None
    return figures, LatentDetails([*result.label_bits], [*result.next_bits], from_start)


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
        letter, old, new = decode(row[:1]), decode(row[PROMPT:]), decode(copy[PROMPT:])
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


# Generated groups of the target task, scored as the paper's Figure 4 shows them.

Groups = list[list[str]]
GROUPS_SHOWN = 2


def target_groups_apply(context: Context) -> bool:
    return context.data.source == "target"


def measure_target_groups(context: Context) -> None:
    fresh, pinned = target_groups(context.model, context.settings, context.device)
    context.evaluation.fresh = score_groups(fresh)
    context.details.groups = {"fresh": fresh[:GROUPS_SHOWN]}
    if pinned:
        context.evaluation.pinned = score_groups(pinned)
        context.details.groups["pinned"] = pinned[:GROUPS_SHOWN]


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
    return fresh, sample(share_z=size) if model.noise_source else []
