"""Rows padded on the left: each as if it stood alone, with a cache and without."""

import pytest
import torch

from ftmodel.model.layers import LayerCache
from tests.support.mutants import rejects

PADDING = (3, 0, 6)
SEPARATE, MEMORY = {"latent": {"encoder": "separate"}}, {"latent": {"inject": "memory"}}
SHAPES = [{}, {"latent_bits": 0}, {"n_kv_heads": 4}, {"latent_block": 1}, SEPARATE, MEMORY]
CLOSE = {"atol": 5e-5, "rtol": 1e-5}


@pytest.fixture
def padded(rng):
    """Tokens (3, 7), how many of each row's first are padding, and noise (3, 7, 3)."""
    tokens = torch.randint(11, (3, 7), generator=rng)
    return tokens, torch.tensor(PADDING), torch.rand(3, 7, 3, generator=rng)


@rejects(
    "model/layers.py", "None if start else real", "None if True else real", "encoder reads padding"
)
@rejects("model/layers.py", "(real | (keys == queries))", "(real | True)", "decoder reads padding")
@pytest.mark.parametrize("changes", SHAPES, ids=str)
@torch.no_grad()
def test_a_padded_row_equals_the_row_alone(make_model, padded, changes):
    model = make_model(**changes).eval()
    tokens, padding, noise = padded
    whole = model(tokens, noise if model.latent else None, padding=padding)
    assert whole.hidden.isfinite().all(), "padding is read by nobody, but must not become NaN"
    for row, first in enumerate(PADDING):
        given = noise[row : row + 1, first:] if model.latent else None
        alone = model(tokens[row : row + 1, first:], given)
        torch.testing.assert_close(whole.hidden[row, first:], alone.hidden[0], **CLOSE)
        if model.latent:
            bit_logits = whole.bit_logits[row, first:]
            torch.testing.assert_close(bit_logits, alone.bit_logits[0], **CLOSE)
            assert torch.equal(whole.codes[row, first:], alone.codes[0])


@pytest.mark.parametrize("chunks", [[4, 3], [1] * 7], ids=str)
@pytest.mark.parametrize("changes", SHAPES, ids=str)
@torch.no_grad()
def test_padded_rows_read_in_chunks_equal_those_read_at_once(make_model, padded, changes, chunks):
    model = make_model(**changes).eval()
    tokens, padding, noise = padded
    codes = (noise[..., 0] * 8).long() if model.latent else None
    z = codes.split(chunks, dim=1) if model.latent else [None] * len(chunks)
    cache = model.new_cache(7)
    parts = [
        model(part, codes=c, cache=cache, padding=padding).hidden
        for part, c in zip(tokens.split(chunks, dim=1), z, strict=True)
    ]
    whole = model(tokens, codes=codes, padding=padding).hidden
    for row, first in enumerate(PADDING):
        chunked = torch.cat(parts, dim=1)[row, first:]
        torch.testing.assert_close(chunked, whole[row, first:], **CLOSE)


def test_masks_of_positions_after_padding(make_model):
    """Two rows, the second with two positions of padding; two queries after a cache of two. Rows
    without padding have no mask, for which attention is faster.
    """
    model, device = make_model(), torch.device("cpu")
    unpadded = model.positions(0, 3, device)
    assert unpadded.causal is unpadded.full is None
    first = model.positions(0, 3, device, padding=torch.tensor([0, 2]))
    causal = [[[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]]
    assert first.causal.squeeze(1).long().tolist() == causal
    assert first.full.squeeze(1).long().tolist() == [[[1, 1, 1]] * 3, [[0, 0, 1]] * 3]
    later = model.positions(2, 2, device, padding=torch.tensor([0, 2]))
    causal = [[[1, 1, 1, 0], [1, 1, 1, 1]], [[0, 0, 1, 0], [0, 0, 1, 1]]]
    assert later.causal.squeeze(1).long().tolist() == causal


def test_rows_of_a_cache_are_copied_in_the_order_asked_for(rng):
    k, v = torch.rand(2, 3, 2, 4, 5, generator=rng).unbind()
    cache = LayerCache(6)
    cache.append(k, v)
    rows = torch.tensor([2, 0, 2])
    chosen = cache.select(rows, 7)
    more = torch.rand(3, 2, 3, 5, generator=rng)
    keys, values = chosen.append(more, -more)
    assert torch.equal(keys, torch.cat((k[rows], more), dim=2))
    assert torch.equal(values, torch.cat((v[rows], -more), dim=2))
    assert cache.length == 4 and torch.equal(cache.keys[:, :, :4], k)
    assert LayerCache(6).select(rows, 7).keys is None
