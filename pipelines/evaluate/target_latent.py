"""What the z of a Free Transformer of the target task does: what it says on its own, where it costs
bits, and what it is worth to the decoder that it was made for.

All is measured on sequences drawn anew from the process, which no training has seen.
"""

from math import log2
from statistics import fmean
from typing import Any

import torch
from torch import Generator, Tensor

from ftmodel.analysis.latent_probe import ask, mean_by_offset, shares_by_label
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import Noise
from ftmodel.model.objective import LN2, kl_per_bit
from ftmodel.model.transformer import FreeTransformer
from ftmodel.synthetic.target_scores import is_valid, mean_position, noise_overlap
from ftmodel.synthetic.target_task import LENGTH, PROMPT, STARTS, decode, sample_with_starts
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.schema import Evaluation

ASKED = 4  # sequences that the probe learns from for each that it is asked about
RECONSTRUCTED = 512  # at most


@torch.inference_mode()
def bit_logits(
    model: FreeTransformer, rows: Tensor, settings: Evaluation, device: torch.device
) -> Tensor:
    """The encoder's logits o (n, T, H) of sequences (n, T + 1), all but the last token read."""
    assert model.latent is not None
    context, found = model.config.context, []
    for part in rows[:, :-1].split(max(1, settings.batch_tokens // context)):
        positions = model.positions(0, context, device)
        found.append(model.latent.encode(model.lower(part.to(device), positions), positions).cpu())
    return torch.cat(found)


def latent_figures(
    model: FreeTransformer, settings: Evaluation, device: torch.device
) -> tuple[dict[str, Any], dict[str, Any]]:
    """``latent`` of evaluation.json, without the upper bound that the ELBO gives, and of
    details.json; all information in bits.
    """
    rng = generator(settings.seed, Purpose.LATENT)
    rows, starts = sample_with_starts(settings.probe_sequences, rng)
    probabilities = bit_logits(model, rows, settings, device).sigmoid()
    shares = shares_by_label(probabilities, starts, STARTS)

    rows, starts = sample_with_starts(max(2, settings.probe_sequences // ASKED), rng)
    o = bit_logits(model, rows, settings, device)
    bits = (torch.rand(o.shape, generator=rng) < o.sigmoid()).long()
    told = ask(shares, bits, starts)
    kl_bits = kl_per_bit(o).sum(-1) / LN2
    # the token that the target begins with is predicted one position before it
    offsets, means, counts = mean_by_offset(kl_bits, PROMPT - 1 + starts)
    some = slice(RECONSTRUCTED)
    metrics = {
        "start_bits": told.label[-1],
        "start_entropy": log2(STARTS),
        "aggregate_bits": {"at_least": told.aggregate},
        "reconstruction": reconstruction(model, rows[some], bits[some], rng, device),
    }
    details = {
        "start_bits": told.label,
        "next_bits": told.next,
        "from_start": {"offset": offsets, "kl_bits": means, "n": counts},
    }
    return metrics, details


def reconstruction(
    model: FreeTransformer, rows: Tensor, bits: Tensor, rng: Generator, device: torch.device
) -> dict[str, float | None]:
    """How sequences (n, 66) come back from their letter, '>' and bits of z (n, 65, H): the share
    that is valid; over those with a letter in both, the mean distance between the target's mean
    positions, in characters; the mean Jaccard overlap of the places of '!'. None of no sequence.
    """
    noise = 1 - 2 * bits.float()  # below any probability, or above: the bits of the prompt too
    made = generate(
        model, rows[:, :PROMPT].to(device), LENGTH, generator=rng, z=Noise(noise.to(device))
    ).cpu()
    valid, distances, overlaps = [], [], []
    for row, copy in zip(rows, made, strict=True):
        letter, old, new = decode(row[:1]), decode(row[PROMPT:]), decode(copy[PROMPT:])
        valid.append(is_valid(new, letter))
        place, place_of_copy = mean_position(old, letter), mean_position(new, letter)
        if place is not None and place_of_copy is not None:
            distances.append(abs(place_of_copy - place))
        if (overlap := noise_overlap([old, new])) == overlap:  # not NaN
            overlaps.append(overlap)
    return {
        "valid": fmean(valid),
        "distance": fmean(distances) if distances else None,
        "noise": fmean(overlaps) if overlaps else None,
    }
