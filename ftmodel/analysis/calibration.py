"""How many particles a filter needs, and which proposal: chosen on text that is not scored.

A filter's −log p̂(x) lies above the NLL in expectation. The more particles it has, the smaller the
gap. 2 F independent filters of each calibration chunk show the gap. The score will be −log of the
mean p̂ of F filters; −log of the mean p̂ of all 2 F filters is a score with twice the particles. The
difference is what doubling would gain. Probabilities are averaged, not their logarithms, because a
mean of unbiased estimates of p(x) is unbiased.

The number of particles starts small and doubles, with new noise each time. Doubling stops when it
gains at most a tenth of the standard error that the evaluation will have. It also stops at the
largest number allowed, or where more would cost too much. From an eighth of the largest number on,
it stops early if not even that would be enough, supposing that the gain falls as 1 / K with K
particles.

Only the choice is used, no estimate. The scored text gets new noise and a fixed number of
particles, so no score is selected by its value.

Shapes: S calibration chunks, F filters that are scored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, sqrt

import torch
from torch import Tensor

from ftmodel.analysis.statistics import mean_and_error
from ftmodel.designs.hinge import LN2

SHARES = (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # the encoder's share of the proposal's logits
MIN_PARTICLES = 4  # shares are compared with this many
MAX_GAIN = 0.1  # in standard errors: a doubling that gains no more is the last


@dataclass(frozen=True)
class Calibration:
    """The choice, and the measurements behind it, bits per token of the calibration text."""

    particles: int  # per filter
    proposal: float  # share of the encoder's logits
    converged: bool
    gain: float  # how much twice the particles would lower the bound
    error: float  # the standard error over documents that the evaluation will have
    shares: dict[float, float]  # the bound of one filter by share, with the fewest particles
    curve: dict[int, float]  # the bound by particles; the last one is twice what was picked
    # whether more particles were wanted and not allowed, since they would cost more than training
    stopped_by_work: bool = False

    def __str__(self) -> str:
        share = f"{self.proposal:g} of the encoder's logits" if self.proposal else "the prior"
        end = "converged" if self.converged else "not converged"
        text = f"{self.particles} particles from {share}, {end}: doubling gains {self.gain:.5f}"
        if self.stopped_by_work:
            text += (
                ". It would make the evaluation cost more than the training did; set "
                f"evaluation.max_particles, for example to {8 * self.particles}, to allow it"
            )
        return text


def merged(nll: Tensor) -> Tensor:
    """−log of the mean of F filters' estimates, nats, (S,), from each filter's −log, (F, S)."""
    return log(len(nll)) - (-nll).logsumexp(0)


def best_share(tried: dict[float, Tensor], tokens: Tensor) -> float:
    """Choose the share to propose by, given the estimates (2 F, S) with each share.

    Candidates are the shares whose bound is at most two standard errors over chunks above the
    lowest. The choice is the candidate whose filters agree best: its merged estimate lies least
    below its single estimates. This distance is less noisy than the bound. But it cannot decide
    alone, because filters also agree where all of them miss the same z.
    """
    bounds = {share: nll.mean(0) for share, nll in tried.items()}
    lowest = min(bounds, key=lambda share: bounds[share].sum().item())

    def near(share: float) -> bool:
        above = mean_and_error(bounds[share] - bounds[lowest], tokens)
        return share == lowest or above["mean"] <= 2 * above["se"]

    gains = {each: (bounds[each] - merged(nll)).sum().item() for each, nll in tried.items()}
    return min(filter(near, tried), key=lambda share: gains[share])


def calibrate(
    estimates: Callable[[int, float], Tensor],
    tokens: Tensor,
    scored_tokens: int,
    most: int,
    shares: Sequence[float] = SHARES,
    affordable: int | None = None,
) -> Calibration:
    """Pick the best share with few particles, then double the particles.

    Args:
        estimates: returns −log p̂ of independent filters, nats, (2 F, S), for particles and share.
        tokens: (S,), tokens in each chunk.
        scored_tokens: tokens that the evaluation will score. Its error is extrapolated from the
            calibration chunks as if all chunks were independent, so it is rather too small.
        most: the largest number of particles of a filter.
        affordable: the largest number that is worth its work (work.py), if that is less. Unlike
            ``most`` it has no say in when a calibration gives up.
    """
    units = tokens.sum().item() * LN2
    particles, curve = min(MIN_PARTICLES, most), dict[int, float]()
    tried = {share: estimates(particles, share) for share in shares}
    share = best_share(tried, tokens)
    by_share = {each: nll.mean(0).sum().item() / units for each, nll in tried.items()}
    nll = tried[share]
    while True:
        scored = torch.stack([merged(half) for half in nll.chunk(2)]).mean(0)
        twice = merged(nll)
        gain = (scored - twice).sum().item() / units
        curve[particles], curve[2 * particles] = (
            nats.sum().item() / units for nats in (scored, twice)
        )
        of_chunks = mean_and_error(twice / LN2, tokens)["se"]
        error = of_chunks * sqrt(tokens.sum().item() / scored_tokens)
        converged = gain <= MAX_GAIN * error
        # if the gain falls as 1 / K, even ``most`` particles are too few
        hopeless = 8 * particles >= most and particles * gain > most * MAX_GAIN * error
        done = converged or hopeless or 2 * particles > most
        if done or (affordable is not None and 2 * particles > affordable):
            return Calibration(particles, share, converged, gain, error, by_share, curve, not done)
        particles *= 2
        nll = estimates(particles, share)
