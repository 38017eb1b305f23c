"""Documents packed into one row, and rows padded on the left: each as if it stood alone."""

import pytest
import torch

from ftmodel.cache import new_cache
from ftmodel.inference.passes import with_codes
from ftmodel.model.objective import training_loss
from tests.support.mutants import rejects
from tests.support.passes import given_codes

LENGTHS = (5, 1, 7, 3)
SHAPES = [
    {},
    {"latent_bits": 0},
    {"n_kv_heads": 4},
    {"n_kv_heads": 4, "latent_bits": 0},
    {"latent_block": 1, "n_kv_heads": 1},
    {"latent": {"encoder": "separate"}},
    {"latent": {"inject": "memory"}},
    {"latent": {"per": "sequence"}},
    {"latent": {"per": "every", "every": 3}},
    {"latent": {"per": "every", "every": 3, "prior": "learned"}},
]


def parts(tensor):
    """What belongs to each document of a packed tensor (B, T, …)."""
    return [None] * len(LENGTHS) if tensor is None else tensor.split(LENGTHS, dim=1)


@rejects("Attention.forward: «at.full→None» if", "encoder reads over the boundaries of documents")
@rejects("Attention.forward: «at.causal→None»", "causal attention over the boundaries of documents")
@rejects("MemoryAttention.forward: «repeat_interleave(2, dim=-1)→tile(2)»", "memory's mask after x")
@rejects("SeparateEncoder.__call__: None, «at→Positions(at.rope)»", "an encoder over two documents")
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_a_packed_row_equals_its_documents_run_alone(make_model, rng, changes):
    """Its loss is a mean over the row's tokens: each document counts by its share of them. Two rows
    have the same lengths and other tokens.
    """
    model, tokens = make_model(**changes), torch.randint(11, (2, 17), generator=rng)
    inputs, targets, bits = tokens[:, :-1], tokens[:, 1:], model.config.latent_bits
    documents = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS)).expand(2, -1)
    noise = torch.rand(2, 16, bits, generator=rng) if bits else None
    at = model.positions(inputs, documents=documents)
    packed = model(inputs, noise, at)
    each = [*zip(parts(inputs), parts(targets), parts(noise), strict=True)]
    alone = [model(x, n) for x, _, n in each]
    logits = [model.logits(out.hidden) for out in alone]
    close = {"atol": 2e-5, "rtol": 2e-5}
    torch.testing.assert_close(model.logits(packed.hidden), torch.cat(logits, 1), **close)
    if model.latent is None:
        assert packed.codes is None
    else:
        bit_logits = torch.cat([out.bit_logits for out in alone], 1)
        torch.testing.assert_close(packed.bit_logits, bit_logits, **close)
        assert torch.equal(packed.codes, torch.cat([out.codes for out in alone], 1))
        codes = with_codes(model, inputs, packed.codes, at)
        torch.testing.assert_close(codes.hidden, packed.hidden, **close)

    total = training_loss(model, inputs, targets, noise, 0.5, documents).total
    total.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    shares = [x.numel() / inputs.numel() for x, *_ in each]
    losses = [training_loss(model, x, y, n, 0.5).total for x, y, n in each]
    expected = sum(share * loss for share, loss in zip(shares, losses, strict=True))
    expected.backward()
    torch.testing.assert_close(total, expected)
    for name, p in model.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad, atol=1e-5, rtol=1e-4, msg=name)


def test_documents_go_with_neither_a_cache_nor_padding(make_model, make_tokens):
    model, tokens = make_model(latent_bits=0), make_tokens(1, 4)
    documents = torch.zeros_like(tokens)
    with pytest.raises(ValueError, match="one document"):
        model.positions(tokens, 4, documents=documents)
    with pytest.raises(ValueError, match="not padded"):
        model.positions(tokens, documents=documents, padding=torch.tensor([1]))


PADDING = (3, 0, 6)
CLOSE = {"atol": 5e-5, "rtol": 1e-5}


@pytest.fixture
def padded(rng):
    """Tokens (3, 7), how many of each row's first are padding, and noise (3, 7, 3)."""
    tokens = torch.randint(11, (3, 7), generator=rng)
    return tokens, torch.tensor(PADDING), torch.rand(3, 7, 3, generator=rng)


@pytest.mark.parametrize("changes", SHAPES, ids=str)
@torch.no_grad()
def test_a_padded_row_equals_the_row_alone(make_model, padded, changes):
    """Read at once or in chunks."""
    model = make_model(**changes).eval()
    tokens, padding, noise = padded
    whole = model(tokens, noise if model.latent else None, model.positions(tokens, padding=padding))
    assert whole.hidden.isfinite().all(), "padding is read by nobody, but must not become NaN"
    read = [whole.hidden]
    for lengths in ([4, 3], [1] * 7):
        cache = new_cache(model.config, 7)
        z = [None] * len(lengths) if whole.codes is None else whole.codes.split(lengths, dim=1)
        parts = []
        for x, c in zip(tokens.split(lengths, dim=1), z, strict=True):
            at = model.positions(x, cache[0].length, padding=padding)
            parts.append(given_codes(model, x, c, at, cache).hidden)
        read.append(torch.cat(parts, dim=1))
    for row, first in enumerate(PADDING):
        given = noise[row : row + 1, first:] if model.latent else None
        alone = model(tokens[row : row + 1, first:], given)
        for hidden in read:
            torch.testing.assert_close(hidden[row, first:], alone.hidden[0], **CLOSE)
        if model.latent:
            bit_logits = whole.bit_logits[row, first:]
            torch.testing.assert_close(bit_logits, alone.bit_logits[0], **CLOSE)
            assert torch.equal(whole.codes[row, first:], alone.codes[0])


def test_rows_without_padding_have_no_mask_for_which_attention_is_faster(make_model):
    positions = make_model().positions(torch.zeros(1, 7))
    assert positions.causal is positions.full is None
