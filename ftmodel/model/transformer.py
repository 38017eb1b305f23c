"""Algorithm 2 of the Free Transformer (Fleuret 2025, arXiv 2510.17558), and its baseline.

Shapes: B batch, T positions, D model width, L blocks, V vocabulary, H latent bits per token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ftmodel.model.config import ModelConfig
from ftmodel.model.layers import (
    Block,
    LayerCache,
    Positions,
    after_padding,
    rope_table,
    within_documents,
)
from ftmodel.model.mapper import binary_mapper
from ftmodel.model.product import Linear


@dataclass
class Output:
    """Of a forward pass. A baseline has neither codes nor bit_logits; given codes, the encoder does
    not run and there are no bit_logits.
    """

    hidden: Tensor  # (B, T, D), normalised, ready for the read-out
    codes: Tensor | None = None  # z (B, T)
    bit_logits: Tensor | None = None  # o (B, T, H)


class Latent(nn.Module):
    """Encoder of z from the lower half's activations, and the post-sampler that embeds z."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.zeta = nn.Parameter(torch.empty(1, 1, config.d_model))
        self.encoder_block = Block(config)
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.readout = Linear(config.d_model, config.latent_bits)
        self.post_sampler = nn.Parameter(torch.empty(1 << config.latent_bits, config.d_model))

    def encode(self, x: Tensor, positions: Positions) -> Tensor:
        """Logits o (B, T, H) of the bits of z. Every position reads all of x (B, T, D), or all of
        its own document. Float32 from the norm on, under autocast too: no bit's logit is rounded to
        bf16.
        """
        y = self.encoder_block(self.zeta, x, positions, causal=False)  # q = zeta, kv = x
        with torch.autocast(y.device.type, enabled=False):
            return self.readout(self.norm(y)).float()


class FreeTransformer(nn.Module):
    """Decoder one of whose blocks, in the paper the middle one, reads a latent code per token
    through its keys and values.

    With ``config.latent_bits == 0`` it is the baseline: the same blocks, no latent.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        """Raises ValueError if no model can be built from ``config``."""
        super().__init__()
        config.validate()
        self.config = config
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.latent = Latent(config) if config.latent_bits else None
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.readout = Linear(config.d_model, vocab_size)
        if config.tied:
            self.readout.weight = self.embedding.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal with std 0.02, divided by √(2 L) for the decoder's projections into its residual
        stream (GPT-2); token embeddings have ``config.embedding_std``, the latent's matrices
        ``config.latent_std``. How soon z is used depends on both: LOG.md, 2026-11-21.
        """
        into_residual = (2 * self.config.n_layers) ** -0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                gain = name.endswith("weight")  # of an RMSNorm
                nn.init.constant_(parameter, float(gain))
                continue
            std = 0.02
            if name.startswith("embedding"):
                std = self.config.embedding_std
            elif name.startswith("latent") and name != "latent.zeta":  # the norm rescales zeta
                std = self.config.latent_std
            elif name.endswith(("output.weight", "down.weight")):
                std *= into_residual
            nn.init.normal_(parameter, std=std)

    def positions(
        self,
        start: int,
        length: int,
        device: torch.device,
        documents: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> Positions:
        """Positions start, start + 1, … of ``length`` = T tokens.

        With ``documents`` (B, T), integers that number the documents of a row, no position reads
        another document's tokens. With ``padding`` (B,), the number of a row's leading positions
        that hold no token, no other position reads those. Numbering neither restarts at a document
        nor skips padding, as RoPE is relative. Raises ValueError if both are given.
        """
        if documents is not None and padding is not None:
            raise ValueError("rows of several documents are packed, not padded")
        rope = rope_table(self.config, start, length, device)
        if documents is not None:
            return within_documents(rope, documents)
        return Positions(rope) if padding is None else after_padding(rope, start, padding)

    def new_cache(self, capacity: int) -> list[LayerCache]:
        """An empty key-value cache for sequences of up to ``capacity`` positions."""
        return [LayerCache(capacity) for _ in self.blocks]

    def forward(
        self,
        tokens: Tensor,
        noise: Tensor | None = None,
        codes: Tensor | None = None,
        cache: list[LayerCache] | None = None,
        documents: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> Output:
        """Activations after tokens (B, T).

        The tokens follow those already in ``cache``, if it is given. With ``documents`` (B, T),
        integers that number the documents of a row, each document is read as if it stood alone.
        With ``padding`` (B,), that many leading positions of each row, counted from the cache's
        first, are read by no other position; the output there is meaningless. Masks cost time: pass
        None for rows without padding.

        The z of a Free Transformer is either sampled from its encoder with ``noise`` (B, T, H)
        uniform on [0, 1) (training, prefill), or given as ``codes`` (B, T) (generation from the
        prior). A baseline takes neither.

        Raises ValueError if ``documents`` is given with ``cache`` or ``padding``: their rows are of
        one document.
        """
        if cache and documents is not None:
            raise ValueError("a cache holds one document a row, not several")
        start, length = cache[0].length if cache else 0, tokens.shape[1]
        positions = self.positions(start, length, tokens.device, documents, padding)
        x = self.lower(tokens, positions, cache)
        if self.latent is None:
            assert noise is None and codes is None, "a baseline has no latent"
            return Output(self.upper(x, None, positions, cache))
        assert (noise is None) != (codes is None), "z comes from noise or from codes, not both"
        if codes is not None:
            return Output(self.upper(x, self.inject_codes(x, codes), positions, cache), codes)
        assert noise is not None
        o = self.latent.encode(x, positions)
        kv, codes = self.inject_sampled(x, o, noise)
        return Output(self.upper(x, kv, positions, cache), codes, o)

    def inject(self, x: Tensor, r: Tensor) -> Tensor:
        """The keys-and-values input x + r of the block that reads z; all (…, D).

        Every use of z goes through here, in training and in inference: another way to inject the
        latent is a change of this method alone.
        """
        return x + r

    def inject_codes(self, x: Tensor, codes: Tensor) -> Tensor:
        """``inject`` the post-sampler's embeddings of given ``codes`` (…) into x (…, D)."""
        assert self.latent is not None, "a baseline has no latent"
        return self.inject(x, self.latent.post_sampler[codes])

    def inject_sampled(self, x: Tensor, o: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """``inject`` codes sampled from logits o (…, H) with ``noise`` (…, H), uniform on [0, 1),
        into x (…, D); returns the injected (…, D) and the codes (…). Differentiable in o, by the
        binary mapper's straight-through gradient, and in the post-sampler's table.
        """
        assert self.latent is not None, "a baseline has no latent"
        r, codes = binary_mapper(o, noise, self.latent.post_sampler)
        return self.inject(x, r), codes

    def lower(
        self, tokens: Tensor, positions: Positions, cache: list[LayerCache] | None = None
    ) -> Tensor:
        """Blocks 1 … L/2, below the injection: tokens (B, T) to activations x (B, T, D)."""
        x = self.embedding(tokens)
        for i in range(self.config.lower_blocks):
            x = self.blocks[i](x, None, positions, cache=cache[i] if cache else None)
        return x

    def upper(
        self,
        x: Tensor,
        kv: Tensor | None,
        positions: Positions,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:
        """Blocks L/2 + 1 … L, then RMSNorm. The first takes its keys and values from ``kv``, what
        ``inject`` made of x; a baseline, whose kv is None, from x.
        """
        first = self.config.lower_blocks
        x = self.blocks[first](x, kv, positions, cache=cache[first] if cache else None)
        for i in range(first + 1, self.config.n_layers):
            x = self.blocks[i](x, None, positions, cache=cache[i] if cache else None)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits (B, T, V) of ``Output.hidden``."""
        return self.readout(hidden)
