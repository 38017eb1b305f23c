"""The order of windows: each once an epoch, and nothing else to be seen in it."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from pipelines.common.rng_streams import Purpose, generator, key
from pipelines.train.core.shuffle import ROUNDS, TABLE, feistel_order, order
from tests.support.mutants import rejects


def keys(epoch):
    return key(0, Purpose.ORDER, epoch).generate_state(ROUNDS, np.uint64)


@rejects("«while→if» len(outside", "an order with windows that are not there")
@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 65, 1000, 4096, 4097, 100_003])
def test_without_a_table_every_window_comes_once(n):
    assert np.sort(feistel_order(n, keys(0))(np.arange(n))).tolist() == list(range(n))


def test_without_a_table_the_order_looks_drawn():
    """Where the first two windows of many epochs lie, how far neighbours are apart, and what is
    left of the order before.
    """
    n = 17
    drawn = np.array([feistel_order(n, keys(epoch))(np.arange(2)) for epoch in range(5_000)])
    pairs = np.bincount(drawn[:, 0] * n + drawn[:, 1], minlength=n * n).reshape(n, n)
    assert not pairs.diagonal().any()
    assert chisquare(pairs[~np.eye(n, dtype=bool)]).pvalue > 1e-3
    n = 50_021
    found = [feistel_order(n, keys(epoch))(np.arange(n)) for epoch in range(2)]
    steps = np.diff(found[0]) % n
    assert chisquare(np.bincount(steps // 501, minlength=100)[:-1]).pvalue > 1e-3
    noise = 4 / n**0.5
    assert abs(np.corrcoef(np.arange(n), found[0])[0, 1]) < noise
    assert abs(np.corrcoef(found[0], found[1])[0, 1]) < noise


def test_few_windows_are_in_the_order_of_torch_and_many_take_no_memory():
    drawn = torch.randperm(9, generator=generator(3, Purpose.ORDER, 2)).tolist()
    assert order(9, 3, 2)(np.arange(9)).tolist() == drawn
    n = 10**12
    positions = np.array([0, 1, n - 1])
    found = [order(n, seed, epoch)(positions) for seed in (0, 1) for epoch in (0, 1)]
    assert len(np.unique(found)) == 12
    assert all((windows >= 0).all() and (windows < n).all() for windows in found)
    assert (
        order(TABLE + 1, 0, 0)(positions[:2]).tolist()
        == feistel_order(TABLE + 1, keys(0))(positions[:2]).tolist()
    )
