"""What every registered process promises."""

from math import factorial, log, perm

import pytest
import torch

from ftmodel.synthetic import PROCESSES

N = 4000


@pytest.fixture(params=PROCESSES)
def process(request):
    return PROCESSES[request.param]


def seeded():
    return torch.Generator().manual_seed(3)


def test_sequences_are_rows_of_its_symbols_and_possible(process):
    rows = process.sample(50, seeded())
    assert rows.shape == (50, process.row)
    assert rows.min() >= 0 and rows.max() < len(process.symbols)
    log_p = process.log_probability(rows)
    assert log_p.shape == (50,) and log_p.dtype == torch.float64
    assert ((log_p > -torch.inf) & (log_p < 0)).all()
    assert process.text(rows[0]).count(process.symbols[int(rows[0, 0])]) > 0


@pytest.mark.parametrize(
    ("name", "symbols", "sequences"),
    [
        ("path_star", "abcdefghijkl654321|", perm(12, 10) * factorial(9) * 3 / factorial(3)),
        ("path_star_2", "abcdefgh654321|", perm(8, 7) * factorial(6) * 2 / factorial(2)),
    ],
)
def test_path_stars_have_3_or_2_arms_of_3_nodes(name, symbols, sequences):
    process = PROCESSES[name]
    assert "".join(process.symbols) == symbols
    log_p = process.log_probability(process.sample(1, seeded())).item()
    assert log_p == pytest.approx(-log(sequences), rel=1e-12)


def test_the_labels_posterior_is_calibrated(process):
    """In the mean it is the label, and its squared error is its own variance, within 4 standard
    errors.
    """
    if process.sample_labelled is None:
        assert process.label_posterior is None
        return
    rows, labels = process.sample_labelled(N, seeded())
    assert torch.equal(rows, process.sample(N, seeded())) and set(labels.tolist()) == {0, 1}
    posterior = process.label_posterior(rows)
    error = (labels - posterior).double()
    variance = posterior * (1 - posterior)
    for excess in (error, error.square() - variance, error * posterior):
        assert abs(excess.mean()) < 4 * excess.std() / N**0.5
