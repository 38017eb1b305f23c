"""The decoder of few operations against the model's own forward pass, token by token."""

from copy import deepcopy

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)

from ftmodel.cache import new_cache
from ftmodel.inference import decoder
from ftmodel.inference.decoder import FastDecoder, PlainDecoder, make_decoder
from ftmodel.inference.generate import generate
from ftmodel.kernels import product
from ftmodel.layers import Attention, Block
from tests.support.mutants import rejects
from tests.support.passes import pinned

CLOSE = {"atol": 5e-5, "rtol": 1e-5}
PADDING = torch.tensor([3, 0, 2])
SPANS = [
    {"latent": {"per": "every", "every": 3, "prior": "learned"}},
    {"latent": {"per": "every", "every": 5, "prior": "recurrent"}},
]
MEMORY = [
    {"latent": {"inject": "memory"}},
    {"latent": {"inject": "memory"}, "latent_block": 1, "qkv_bias": True, "n_kv_heads": 1},
    {"latent": {"inject": "memory"}, "latent_block": 4, "qk_norm": True, "head_width": 6},
]
SHAPES = [
    *({}, {"latent_bits": 0}, {"latent_block": 1}, {"latent_block": 4}),
    *({"n_kv_heads": 4}, {"n_kv_heads": 1}, {"qkv_bias": True}),
    {"qk_norm": True, "norm_eps": 0.3, "head_width": 6},
    {"latent_bits": 0, "qk_norm": True, "qkv_bias": True, "n_kv_heads": 4, "head_width": 8},
    {"latent_bits": 0, "head_width": 2},
    {"n_layers": 3, "latent_block": 2, "rope_theta": 50.0, "norm_eps": 0.3, "tied": False},
    *({"latent": {"inject": "residual", "map": "linear"}}, {"latent": {"inject": "embedding"}}),
    *({"latent": {"inject": "kv_all"}}, {"latent": {"inject": "kv_all"}, "latent_block": 1}),
    *MEMORY,
]


@pytest.fixture
def started(rng):
    """Factory of caches of 16 positions in which the first 5 tokens of three rows stand."""
    tokens, noise = torch.randint(11, (3, 5), generator=rng), torch.rand(3, 5, 3, generator=rng)

    def start(model, padding=None):
        cache = new_cache(model.config, 16)
        at = model.positions(tokens, padding=padding)
        model(tokens, noise if model.latent else None, at, cache)
        return cache

    return start


@rejects("FastDecoder.read: «→ - 1»], self.key_mask() torch", "new tokens off by one position")
@rejects(
    "DecodingBlock.__init__: «query_norm→key_norm»), (kv // e, attention.«key_norm→query_norm»",
    "gains of queries exchanged with those of keys in decoding",
)
@rejects("DecodingBlock.read: «-→: »rows * self.slots« :→»", "keys of new tokens without z")
@rejects("FastDecoder.upper: («kv→r»", "keys and values of new tokens from r alone")
@rejects(
    "DecodingBlock.read: new«→[..., :1, :].expand_as(self.new)».", "memory missing in decoding"
)
@pytest.mark.parametrize("changes", SHAPES, ids=str)
@torch.inference_mode()
def test_every_token_up_to_the_last_is_read_as_the_model_reads_it(
    make_model, started, rng, monkeypatch, changes
):
    """By bmm and by PyTorch's attention, with padding, and with oneDNN's products. What lies in a
    new cache is never read; what is left there is what the model leaves; what was returned is no
    view of a buffer.
    """
    model, onednn = make_model(**changes), torch.backends.mkldnn.is_available()
    monkeypatch.setattr(decoder, "MIN_MULTIPLICATIONS", 0)
    cases = (None, 1, False), (None, 1000, False), (PADDING, 1, False), (None, 1, onednn)
    for padding, bmm_heads, by_onednn in cases:
        monkeypatch.setattr(decoder, "BMM_HEADS", bmm_heads)
        monkeypatch.setattr(product, "ONEDNN", by_onednn)
        caches = started(model, padding), started(model, padding)
        for layer in caches[0]:
            layer.keys[:, :, 5:] = layer.values[:, :, 5:] = torch.nan
        fast = FastDecoder(model, caches[0], padding)
        plain = PlainDecoder(model, caches[1], padding)
        assert fast.readout.onednn == fast.upper_blocks[0].down.onednn == by_onednn
        read = []
        for _ in range(11):
            tokens, codes = (torch.randint(n, (3,), generator=rng) for n in (11, 8))
            z = pinned(codes, 3) if model.latent else None
            read.append((fast.read(tokens, z), plain.read(tokens, z)))
        for hidden, expected in read:
            assert expected.std() > 0.5, "activations this small would compare nothing"
            torch.testing.assert_close(hidden, expected, **CLOSE)
            torch.testing.assert_close(fast.logits(hidden), plain.logits(expected), **CLOSE)
        for ours, theirs in zip(*caches, strict=True):
            assert ours.length == theirs.length == 16
            torch.testing.assert_close(ours.keys, theirs.keys, **CLOSE)
            torch.testing.assert_close(ours.values, theirs.values, **CLOSE)
        with pytest.raises(IndexError):
            fast.read(tokens, z)


def test_from_how_many_heads_on_attention_is_by_bmm(make_model, started, monkeypatch):
    """Keys of 3 rows with 2 heads each."""
    for least, by_bmm in ((6, True), (7, False)):
        monkeypatch.setattr(decoder, "BMM_HEADS", least)
        fast = FastDecoder(make_model(), started(make_model()))
        assert all(block.by_bmm == by_bmm for block in (*fast.lower, *fast.upper_blocks))


@rejects("decoder.make_decoder: «, codes→») )", "a decoder that does not keep the z of a span")
@pytest.mark.parametrize("changes", [{}, {"latent_bits": 0}, *MEMORY, *SPANS], ids=str)
def test_generation_is_the_same_by_either(make_model, make_tokens, started, changes):
    """In float64 and by wrapped blocks, as for activation checkpointing, it is the model that
    decodes: the same weights, z and draws. Of the rows two end early, one of them amid a span.
    """
    model, prompt = make_model(**changes), make_tokens(3, 4)

    def continued():
        rng = torch.Generator().manual_seed(5)
        ends = lambda new: torch.arange(3) * new.shape[1] == 8  # noqa: E731
        return generate(model, prompt, 12, generator=rng, until=ends)

    fast = continued()
    with torch.inference_mode():
        assert isinstance(make_decoder(model, started(model)), FastDecoder)
        with torch.autocast("cpu", torch.bfloat16):
            assert isinstance(make_decoder(model, started(model)), PlainDecoder)
        other = deepcopy(model)
        other.blocks[0].attention.__class__ = type("Other", (Attention,), {})
        assert isinstance(make_decoder(other, started(other)), PlainDecoder)
    model.double()
    assert torch.equal(continued(), fast)
    apply_activation_checkpointing(model.float(), check_fn=lambda module: isinstance(module, Block))
    assert torch.equal(continued(), fast)
