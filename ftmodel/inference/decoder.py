"""Incremental decoding: one token per row after those in the cache.

``FastDecoder`` is the model's forward pass for T = 1 in as few operations as give the same result:
at small batches a step takes the time to read the weights once plus the launch cost of each
operation. ``PlainDecoder`` calls the model.

Weights may be rounded to bfloat16, which halves the time to read them. Activations are rounded for
these products as well, sums stay float32; norms, attention, z and the residual stream are float32.

Shapes: B rows, D model width, N heads, M key-value heads, E head width, F width of SwiGLU; a matrix
has I inputs and O outputs.
"""

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ftmodel.cache import LayerCache
from ftmodel.designs.injection import MemoryAttention
from ftmodel.designs.noise import Draws
from ftmodel.kernels.product import onednn_is_faster
from ftmodel.layers import Attention, Block
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.positions import Positions, rope_table

# multiply-adds from which on a product uses oneDNN: its call costs 10 µs, a call of MKL 1
MIN_MULTIPLICATIONS = 1 << 20
LEAST_ROUNDED = 1 << 18  # elements of a matrix that is worth rounding


class Matrix:
    """W (O, I), for products with ``rows`` rows."""

    def __init__(self, weight: Tensor, rows: int) -> None:
        self.weight, self.transposed = weight, weight.t()
        self.onednn = onednn_is_faster(weight) and rows * weight.numel() >= MIN_MULTIPLICATIONS

    def times(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x Wᵀ (B, O) for x (B, I), written into ``out`` if there is one."""
        if not self.onednn:
            return torch.mm(x, self.transposed, out=out)
        y = self.by_onednn(x)
        return y if out is None else out.copy_(y)

    def add_times(self, x: Tensor, to: Tensor) -> None:
        """Add x Wᵀ to ``to`` (B, O)."""
        if self.onednn:
            to.add_(self.by_onednn(x))
        else:
            to.addmm_(x, self.transposed)

    def by_onednn(self, x: Tensor) -> Tensor:
        return torch.ops.ftmodel.onednn_product(x, self.weight)


class RoundedMatrix(Matrix):
    """W in bfloat16, in oneDNN's own layout."""

    def __init__(self, packed: Tensor) -> None:
        self.weight, self.onednn = packed, True

    def by_onednn(self, x: Tensor) -> Tensor:
        y = torch.ops.mkldnn._linear_pointwise(x.bfloat16(), self.weight, None, "none", [], "")
        return y.float()


def bf16_products() -> bool:
    """Whether this processor multiplies bfloat16 matrices itself."""
    known = torch.cpu.get_capabilities()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


class RoundedWeights:
    """A model's large matrices rounded to bfloat16, for many generations; half its memory."""

    def __init__(self, model: FreeTransformer) -> None:
        """Raises ValueError unless the model is on a CPU that multiplies bfloat16 itself."""
        self.model = model
        if model.embedding.weight.device.type != "cpu" or not bf16_products():
            raise ValueError("it needs a model on a CPU with AVX512-BF16 or AMX")
        read = [module for module in model.blocks.modules() if isinstance(module, nn.Linear)]
        with torch.no_grad():
            self.packed = {
                m.weight: torch.ops.mkldnn._reorder_linear_weight(m.weight.bfloat16())
                for m in (*read, model.readout)
                if m.weight.numel() >= LEAST_ROUNDED
            }


def matrix(weight: Tensor, rows: int, rounded: RoundedWeights | None = None) -> Matrix:
    """Prepare ``weight`` (O, I) for products with ``rows`` rows, rounded if ``rounded`` has it."""
    packed = None if rounded is None else rounded.packed.get(weight)
    return Matrix(weight, rows) if packed is None else RoundedMatrix(packed)


BMM_HEADS = 64  # of all rows, from which on two bmm are faster than PyTorch's attention, on a CPU


class Activation:
    """Activations x (B, D) in a buffer with more channels: channel D, √(ε D), gives RMSNorm its ε,
    the others are 0.
    """

    def __init__(self, buffer: Tensor, width: int) -> None:
        self.channels, self.x = buffer, buffer[:, :width]
        self.norm = buffer.new_empty(len(buffer), 1)

    def normalized(self, gain: Tensor) -> Tensor:
        """RMSNorm of x: x / √(Σ x² + ε D) · √D gain, (B, D); ``gain`` (D,) comes with its √D."""
        torch.linalg.vector_norm(self.channels, dim=1, keepdim=True, out=self.norm)
        return (self.x / self.norm).mul_(gain)


class DecodingBlock:
    """A block for one position per row: its weights, its cache and buffers for its projections."""

    def __init__(
        self, block: Block, cache: LayerCache, rows: int, rounded: RoundedWeights | None
    ) -> None:
        attention, ffn = block.attention, block.ffn
        self.gains = [
            norm.weight * sqrt(norm.weight.numel())
            for norm in (block.attention_norm, block.ffn_norm)
        ]
        self.query = matrix(attention.query.weight, rows, rounded)
        self.output = matrix(attention.output.weight, rows, rounded)
        self.gate_up = matrix(ffn.gate_up.weight, rows, rounded)
        self.down = matrix(ffn.down.weight, rows, rounded)
        self.cache = cache

        q, e = attention.query.out_features, attention.head_width  # q: N E
        kv = attention.key_value.out_features // 2
        # keys per position: 2 where r is read as memory; r's are in the last B rows of qkv
        self.slots = 2 if isinstance(attention, MemoryAttention) else 1
        self.key_value = matrix(attention.key_value.weight, rows * self.slots, rounded)
        qkv = block.attention_norm.weight.new_zeros(rows * self.slots, q + 2 * kv)
        self.qkv, self.bias = qkv, None
        if attention.query.bias is not None:
            self.bias = torch.cat((attention.query.bias, attention.key_value.bias))
        self.by_bmm = qkv.device.type == "cpu" and rows * (kv // e) >= BMM_HEADS
        self.scale, self.zero = e**-0.5, qkv.new_zeros(1, 1, 1)
        # written by the projections, the rest are views
        self.q, self.kv = qkv[:rows, :q], qkv[:, q:]
        # heads that share keys become the positions of one head: no copy of keys and values
        self.queries = self.q.unflatten(1, (kv // e, -1, e))  # (B, M, N / M, E)
        new = self.kv.unflatten(1, (2, kv // e, e)).unflatten(0, (self.slots, rows))
        self.new = new.permute(2, 1, 3, 0, 4).squeeze(3)  # (2, B, M, E) or (2, B, M, 2, E)
        self.heads = qkv[:, : q + kv].unflatten(1, (-1, e))  # (B, N + M, E)
        self.rotated = torch.view_as_complex(self.heads.unflatten(2, (-1, 2)))  # (…, E / 2)
        self.head_gains = None  # (N + M, E)
        if attention.query_norm is not None and attention.key_norm is not None:
            counts = (q // e, attention.query_norm), (kv // e, attention.key_norm)
            self.head_gains = torch.cat([norm.weight.expand(n, e) for n, norm in counts])
            self.eps = attention.query_norm.eps
        self.wide = qkv.new_empty(rows, ffn.gate_up.out_features)
        self.gate, self.up = self.wide.chunk(2, dim=-1)

    def read(self, x: Activation, both: Activation, rope: Tensor, mask: Tensor | None) -> None:
        """Run ``Block.forward`` in place on x, which queries come from. Keys and values come from
        the last rows of ``both``, which begins with x or is x; with r as memory, from all its rows.

        ``rope`` (E / 2,) belongs to the position, ``mask`` (B, 1, 1, S) is added to the scores.
        """
        normalized, rows = both.normalized(self.gains[0]), len(x.x)
        self.query.times(normalized[:rows], out=self.q)
        self.key_value.times(normalized[-rows * self.slots :], out=self.kv)
        if self.bias is not None:
            self.qkv.add_(self.bias)
        if self.head_gains is not None:
            heads = F.rms_norm(self.heads, self.heads.shape[-1:], eps=self.eps)
            torch.mul(heads, self.head_gains, out=self.heads)
        self.rotated.mul_(rope)
        if self.slots == 1:
            keys, values = self.cache.append_one(self.new)
        else:
            both_slots = self.cache.append_one(self.new.flatten(3))
            keys, values = (x.unflatten(-1, (2, -1)).flatten(2, 3) for x in both_slots)
            mask = None if mask is None else mask.repeat_interleave(2, dim=-1)
        self.output.add_times(self.attend(keys, values, mask).reshape(self.q.shape), to=x.x)
        self.gate_up.times(x.normalized(self.gains[1]), out=self.wide)
        self.down.add_times(F.silu(self.gate, inplace=True).mul_(self.up), to=x.x)

    def attend(self, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attention to keys and values (B, M, S, E): (B, M, N / M, E), or with B and M as one."""
        if mask is not None or not self.by_bmm:
            return F.scaled_dot_product_attention(self.queries, keys, values, attn_mask=mask)
        queries, keys, values = (x.flatten(0, 1) for x in (self.queries, keys, values))
        scores = torch.baddbmm(self.zero, queries, keys.mT, beta=0, alpha=self.scale)
        return torch.bmm(scores.softmax(-1), values)


class FastDecoder:
    """Reads a token per row; needs float32, unwrapped blocks, no autocast and no gradients."""

    def __init__(
        self,
        model: FreeTransformer,
        cache: Sequence[LayerCache],
        padding: Tensor | None = None,
        rounded: RoundedWeights | None = None,
        codes: Tensor | None = None,
    ) -> None:
        """Continue a forward pass that filled ``cache`` with the first tokens of B rows, at least
        from the injection on if ``read`` is not called. ``padding`` (B,) is as in ``Positions.of``,
        ``rounded`` this model's weights, ``codes`` (B,) z of the last token, for a next one that
        keeps it.
        """
        assert cache[-1].keys is not None, "an empty cache: the first tokens go through the model"
        rows, _, capacity, _ = cache[-1].keys.shape
        config, embedding = model.config, model.embedding.weight
        self.position = cache[-1].length
        self.rope = rope_table(config, 0, capacity, embedding.device)
        self.mask = None  # (B, 1, 1, S), added to scores
        if padding is not None:
            unread = torch.arange(capacity, device=embedding.device) < padding[:, None]
            zeros = torch.zeros_like(unread, dtype=embedding.dtype)
            self.mask = zeros.masked_fill_(unread, -torch.inf)[:, None, None]
        self.model, self.embedding = model, embedding
        self.codes = codes
        self.gain = model.norm.weight * sqrt(config.d_model)
        # the residual stream, and below it, for the block that reads z, the same with r injected,
        # or r alone as memory
        both = rows if model.latent is None else 2 * rows
        width, eps = config.d_model, config.norm_eps
        buffer = embedding.new_zeros(both, width + 16)  # rows stay aligned to 64 bytes
        buffer[:, width] = sqrt(eps * width)
        self.x, self.both = (Activation(b, width) for b in (buffer[:rows], buffer))
        self.injected = self.both.x[-rows:]
        self.readout = matrix(model.readout.weight, rows, rounded)
        blocks = []
        for block, layer in zip(model.blocks, cache, strict=True):
            assert isinstance(block, Block), "a module around a block hides its weights"
            blocks.append(DecodingBlock(block, layer, rows, rounded))
        first = config.lower_blocks
        self.lower, self.upper_blocks = blocks[:first], blocks[first:]

    def read(self, tokens: Tensor, draws: Draws | None, before: Tensor | None = None) -> Tensor:
        """Read tokens (B,) with z of the prior by ``draws`` (B, H), as in ``Latent.draw``; None for
        a baseline. Returns hidden (B, D), as in ``Output``. A recurrent prior needs the hidden
        state of the token ``before``.
        """
        rope, mask = self.rope[self.position], self.key_mask()
        torch.index_select(self.embedding, 0, tokens, out=self.x.x)
        for block in self.lower:
            block.read(self.x, self.x, rope, mask)
        self.codes = next_codes(self.model, draws, self.x.x, before, self.codes)
        return self.upper(self.x.x, self.codes)

    def key_mask(self) -> Tensor | None:
        """The mask of the keys up to the next position."""
        return None if self.mask is None else self.mask[..., : self.position + 1]

    def upper(self, x: Tensor, codes: Tensor | None) -> Tensor:
        """``read`` from the injection on: x (B, D) from below it, z = ``codes`` (B,) or None."""
        rope, mask = self.rope[self.position], self.key_mask()
        self.position += 1
        if x is not self.x.x:
            self.x.x.copy_(x)
        r = None
        if self.model.latent is not None:
            assert codes is not None, "a Free Transformer reads z"
            r = self.model.latent.embed(codes)
        for n, block in enumerate(self.upper_blocks, self.model.config.lower_blocks):
            stream, kv = self.x.x, None
            if r is not None:  # z enters here: keys and values of the block come from kv
                stream, kv = self.model.inject(n, self.x.x, r)
            if stream is not self.x.x:
                self.x.x.copy_(stream)
            if kv is not None:
                self.injected.copy_(kv)
            block.read(self.x, self.x if kv is None else self.both, rope, mask)
        return self.x.normalized(self.gain)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits (B, V) from what ``read`` returned."""
        return self.readout.times(hidden)


class PlainDecoder:
    """Decodes by the model's forward pass: for any precision, wrapped blocks, and as reference."""

    def __init__(
        self,
        model: FreeTransformer,
        cache: list[LayerCache],
        padding: Tensor | None = None,
        codes: Tensor | None = None,
    ) -> None:
        self.model, self.cache, self.padding, self.codes = model, cache, padding, codes

    def read(self, tokens: Tensor, draws: Draws | None, before: Tensor | None = None) -> Tensor:
        at = self.at(tokens)
        x = self.model.lower(tokens[:, None], at, self.cache).squeeze(1)
        self.codes = next_codes(self.model, draws, x, before, self.codes)
        return self.upper(x, self.codes, at)

    def at(self, tokens: Tensor) -> Positions:
        """Positions of the next tokens (B,); only their number and device matter."""
        start = self.cache[-1].length
        return self.model.positions(tokens[:, None], start, padding=self.padding)

    def upper(self, x: Tensor, codes: Tensor | None, at: Positions | None = None) -> Tensor:
        at, r = at or self.at(x[:, 0]), None
        if self.model.latent is not None:
            assert codes is not None, "z of new tokens comes as codes"
            r = self.model.latent.embed(codes[:, None])
        return self.model.upper(x[:, None], r, at, self.cache).squeeze(1)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.model.logits(hidden)


def next_codes(
    model: FreeTransformer,
    draws: Draws | None,
    x: Tensor,
    before: Tensor | None,
    codes: Tensor | None,
) -> Tensor | None:
    """z (B,) of a token whose lower half's activations are x (B, D), after a token with z =
    ``codes`` (B,); ``draws`` and ``before`` as in ``FastDecoder.read``.
    """
    if model.latent is None or draws is None:
        return None
    return model.latent.draw(draws, x, before, codes)


def fast_can_read(block: nn.Module) -> bool:
    """Whether FastDecoder can compute this block, which nothing wraps or shards."""
    known = (Attention, MemoryAttention)
    return type(block) is Block and type(block.attention) in known


def make_decoder(
    model: FreeTransformer,
    cache: list[LayerCache],
    padding: Tensor | None = None,
    rounded: RoundedWeights | None = None,
    codes: Tensor | None = None,
) -> FastDecoder | PlainDecoder:
    """Choose the model's fastest decoder; ValueError for another model's ``rounded`` weights."""
    weight = model.embedding.weight
    exact = weight.dtype == torch.float32 and not torch.is_autocast_enabled(weight.device.type)
    fast = exact and all(map(fast_can_read, model.blocks))
    if rounded and not (fast and rounded.model is model):
        raise ValueError("rounded weights need a decoder in float32 of the same model")
    return (
        FastDecoder(model, cache, padding, rounded, codes)
        if fast
        else PlainDecoder(model, cache, padding, codes)
    )
