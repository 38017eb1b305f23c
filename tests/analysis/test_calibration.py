"""Particles and proposal of a filter, on models whose answer is known."""

from dataclasses import replace
from math import cosh, log

import pytest
import torch

from ftmodel.analysis.calibration import best_share, calibrate
from ftmodel.analysis.work import TOKEN_BY_TOKEN, EvaluationWork, particle_passes
from ftmodel.config import LatentDesign, ModelConfig
from tests.support.mutants import rejects

LENGTHS = torch.full((16,), 65)
TRUTH = 100 + torch.arange(16, dtype=torch.float64)  # nats of each chunk


def two_levels(spread):
    """Estimates of six filters that lie ``spread(particles)`` nats above the truth, and below."""
    signs = torch.tensor([1.0, 1, 1, -1, -1, -1], dtype=torch.float64)[:, None]
    return lambda particles, share: TRUTH + signs * spread(particles)


@rejects("calibration.merged: «log(len(nll)) - (-nll).logsumexp→nll.mean»", "a mean of logarithms")
@rejects(
    "calibration.calibrate: «sqrt(tokens.sum().item() / scored_tokens)→1.0»",
    "the error of the calibration text taken for that of the scored text",
)
@pytest.mark.parametrize(("most", "picked"), [(512, 64), (64, 64), (60, 32), (3, 3)])
def test_particles_are_doubled_until_that_gains_a_tenth_of_the_error(most, picked):
    """Of TRUTH the error over 4 · 16 chunks is 0.595 nats. Estimates at a distance d gain log cosh
    d, which with d = 2.6 / √K is 0.052 of 64 particles and 0.103 of 32.
    """
    scored, spread = 4 * 16 * 65, lambda particles: 2.6 * particles**-0.5
    found = calibrate(two_levels(spread), LENGTHS, scored, most)
    assert (found.particles, found.converged) == (picked, picked == 64)
    units = 65 * log(2)
    assert found.error * units == pytest.approx(TRUTH.std().item() / 8)
    assert found.gain * units == pytest.approx(log(cosh(spread(picked))))
    steps = [3, 6] if most == 3 else [4 * 2**i for i in range(6) if 4 * 2**i <= 2 * picked]
    assert [*found.curve] == steps
    *_, last, twice = found.curve.values()
    assert last * units == pytest.approx(TRUTH.mean().item())
    assert twice == pytest.approx(last - found.gain)


@rejects("calibration.calibrate: tried[«share→shares[0]»", "the share that was picked is not used")
@rejects(
    "calibration.calibrate: = estimates(particles, «share→shares[0]»", "doubling another share"
)
def test_particles_are_doubled_with_the_share_that_was_picked():
    """The other one has a bound that is higher by 50 nats."""
    asked, units = [], 65 * log(2)

    def estimates(particles, share):
        asked.append((particles, share))
        nll = two_levels(lambda k: (2.6 if share else 20.0) * k**-0.5)(particles, share)
        return nll if share else nll + 50

    found = calibrate(estimates, LENGTHS, 4 * 16 * 65, 512, (0.0, 0.5))
    assert asked == [(4, 0.0), (4, 0.5), *((k, 0.5) for k in (8, 16, 32, 64))]
    assert (found.proposal, found.particles) == (0.5, 64)
    mean = TRUTH.mean().item()
    assert found.curve[4] * units == pytest.approx(mean)
    assert [x * units for x in found.shares.values()] == pytest.approx([mean + 50, mean])


@rejects("calibration.calibrate: «hopeless or→»", "particles spent where none suffice")
def test_it_gives_up_at_an_eighth_of_the_most_particles_where_all_would_not_do():
    for most, picked in ((513, 128), (512, 64)):
        found = calibrate(two_levels(lambda _: 20.0), LENGTHS, 4 * 16 * 65, most)
        assert not found.converged and found.particles == picked
    assert calibrate(lambda *_: torch.zeros(4, 16), LENGTHS, 1, 512).particles == 4  # no error
    assert str(found).startswith("64 particles from the prior, not converged: doubling gains 0.4")


@pytest.mark.parametrize(
    ("affordable", "picked", "stopped"),
    [(4, 4, True), (16, 16, True), (31, 16, True), (64, 64, False)],
)
def test_particles_are_not_doubled_beyond_what_is_worth_its_work(affordable, picked, stopped):
    """Which is no reason to give up earlier: that depends on the most particles alone."""
    found = calibrate(
        two_levels(lambda k: 2.6 * k**-0.5), LENGTHS, 4 * 16 * 65, 512, (0.0,), affordable
    )
    assert (found.particles, found.stopped_by_work) == (picked, stopped)
    assert ("evaluation.max_particles" in str(found)) is stopped
    hopeless = calibrate(two_levels(lambda _: 20.0), LENGTHS, 4 * 16 * 65, 512, (0.0,), 64)
    assert (hopeless.particles, hopeless.stopped_by_work) == (64, False)


SHAPE = ModelConfig(4, 16, 2, 1, 32, 65, latent_bits=3)  # z is read in the third block of four


@rejects(
    "work.EvaluationWork.calibration: «shares * →»MIN_PARTICLES", "proposals that cost nothing"
)
@rejects("work.EvaluationWork.passes: «self.filters *→»", "one filter of several")
def test_the_work_of_an_evaluation_is_counted():
    """In passes of a token: half of the blocks read z, and a filter reads them token by token."""
    work = EvaluationWork(SHAPE, 100, 10, filters=2, iwae_samples=3, read_tokens=7)
    particle = TOKEN_BY_TOKEN / 2
    scoring = 100 * (1 + 2 * 3 / 2 + 2 * 16 * particle) + 7
    assert work.passes(16, 0) == scoring
    calibration = 10 * 2 * 2 * (5 * 4 + 8 + 16) * particle
    assert work.passes(16, 5) == scoring + calibration
    for allowed, most in ((1, 16), (0.999, 8), (0.01, 0), (99, 512)):
        assert work.most_particles(allowed * work.passes(16, 5), 5, 512) == most
    assert work.most_particles(1e9, 5, 12) == 8 and work.most_particles(1e9, 5, 3) == 3
    own = replace(work, own_text_tokens=5).passes(16, 0)
    assert own == scoring + 5 * (2 * 2 * 16 * particle + TOKEN_BY_TOKEN)
    generated = replace(work, generated_tokens=9).passes(16, 0)
    assert generated == scoring + 9 * TOKEN_BY_TOKEN


@pytest.mark.parametrize(
    ("changes", "particle", "each"),
    [
        ({"latent_bits": 0}, 0, 1),
        ({"latent_bits": 0, "random_prefix": 2}, 1, 1 + 2 * 16),
        ({"latent": LatentDesign(per="sequence")}, 0, 1 + 2 * 3 / 2 + 8 / 2),  # all 8 z are summed
        ({"latent": LatentDesign(per="sequence"), "latent_bits": 9}, 0.5, 1 + 2 * 3 / 2 + 2 * 8),
    ],
    ids=["baseline", "prefix", "enumerated", "one code"],
)
def test_what_needs_no_filter_does_no_work_of_one(changes, particle, each):
    config = replace(SHAPE, **changes)
    assert particle_passes(config) == particle
    assert EvaluationWork(config, 100, 10, filters=2, iwae_samples=3).passes(16, 0) == 100 * each


@rejects("calibration.best_share: «filter(near, tried)→[lowest]»", "a share picked by noise")
def test_filters_that_agree_on_a_higher_bound_are_not_picked():
    """A bound that is higher by 1.9 of its standard errors may be so by chance, by 2.1 not."""
    signs = torch.tensor([1.0, -1, 1, -1], dtype=torch.float64)[:, None]
    noise = torch.tensor([15**0.5, -(15**0.5)], dtype=torch.float64).repeat(8)  # 0 ± 1
    missing, poor, good = (TRUTH + 2.1 + noise + 0 * signs, TRUTH + 2 * signs,
                           TRUTH + 1.9 + noise + signs)  # fmt: skip
    assert best_share({0.0: missing, 0.25: poor, 0.5: good}, LENGTHS) == 0.5
