"""How many particles a filter needs, and which proposal: found on text that is not scored.

A filter's −log p̂(x) lies above the NLL in expectation, by less the more particles it has. 2 F
independent filters of each calibration chunk show by how much: −log of the mean p̂ of F of them is
what will be scored, −log of the mean of all is the same with twice the particles, and their
difference is what doubling would gain. Probabilities are averaged, not their logarithms, for the
mean of unbiased estimates of p(x) is one as well. From few particles on they are doubled, with new
noise each time, until a doubling gains less than a tenth of the standard error that the evaluation
will have.

Only the choice is taken from here, and no estimate: the scored text gets new noise and one fixed
number of particles, so that nothing is selected by what it gives there.

Shapes: S calibration chunks, F filters that are scored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, sqrt

import torch
from torch import Tensor

from ftmodel.analysis.statistics import mean_and_error
from ftmodel.designs.hinge import LN2

SHARES = (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # of the encoder's logits in the proposal
FIRST = 4  # particles that shares are compared with, and the fewest
TOLERATED = 0.1  # gain of a doubling, in standard errors
# times the most particles: where so many would be needed if the gain fell as 1 / K, none are tried
HOPELESS = 2


@dataclass(frozen=True)
class Calibration:
    """What was picked, and from which figures: bits per token of the calibration text."""

    particles: int  # of each filter
    proposal: float  # share of the encoder's logits
    converged: bool
    gain: float  # by which twice the particles would lower the bound
    error: float  # the standard error over documents that the evaluation will have
    # by share, with the fewest particles: the bound of one filter, and what merging 2 F of them
    # lowers it by, again
    shares: dict[float, float]
    curve: dict[int, float]  # the bound by particles; the last one is twice what was picked

    def __str__(self) -> str:
        share = f"{self.proposal:g} of the encoder's logits" if self.proposal else "the prior"
        end = "converged" if self.converged else "not converged"
        return f"{self.particles} particles from {share}, {end}: doubling gains {self.gain:.5f}"


def merged(nll: Tensor) -> Tensor:
    """−log of the mean probability, nats, (S,), by −log of each of F filters, (F, S)."""
    return log(len(nll)) - (-nll).logsumexp(0)


def calibrate(
    estimates: Callable[[int, float], Tensor],
    tokens: Tensor,
    scored_tokens: int,
    most: int,
    shares: Sequence[float] = SHARES,
) -> Calibration:
    """Pick the share that is best with few particles, then double these.

    The best share has the lowest bound of a single filter, to which is added how far all filters
    together lie below it: of two measures of the same looseness the sum is less noisy than either.

    Args:
        estimates: −log p̂, nats, (2 F, S) of independent filters, given particles and share.
        tokens: (S,) of each chunk.
        scored_tokens: that the evaluation will score. Its error is that of the calibration chunks,
            as if all were independent, which makes it rather too small.
        most: particles of a filter at the most.
    """
    units = tokens.sum().item() * LN2
    particles, curve = min(FIRST, most), dict[int, float]()
    by_share = {share: merged(estimates(particles, share)).sum().item() / units for share in shares}
    share = min(by_share, key=lambda share: by_share[share])
    while True:
        nll = estimates(particles, share)
        scored = torch.stack([merged(half) for half in nll.chunk(2)]).mean(0)
        twice = merged(nll)
        gain = (scored - twice).sum().item() / units
        curve[particles], curve[2 * particles] = (
            nats.sum().item() / units for nats in (scored, twice)
        )
        of_chunks = mean_and_error(twice / LN2, tokens)["se"]
        error = of_chunks * sqrt(tokens.sum().item() / scored_tokens)
        converged = gain <= TOLERATED * error
        hopeless = particles > FIRST and particles * gain > HOPELESS * most * TOLERATED * error
        if converged or hopeless or 2 * particles > most:
            return Calibration(particles, share, converged, gain, error, by_share, curve)
        particles *= 2
