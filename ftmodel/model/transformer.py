"""Algorithm 2 of the Free Transformer (Fleuret 2025, arXiv 2510.17558), and its baseline.

Shapes: B batch, T positions, D model width, L blocks, V vocabulary, H latent bits per token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ftmodel.model.config import ModelConfig
from ftmodel.model.latent import Latent
from ftmodel.model.latent_design import STREAM, Encoder, Inject, Per
from ftmodel.model.layers import (
    Block,
    LayerCache,
    Positions,
    after_padding,
    rope_table,
    within_documents,
)
from ftmodel.model.product import Linear
from ftmodel.model.spans import at_starts, is_start, kept, noise_at_starts, span_starts


@dataclass
class Output:
    """Of a forward pass. A baseline has neither codes nor logits of them; unless z is sampled from
    the encoder, it does not run and there are no logits.
    """

    hidden: Tensor  # (B, T, D), normalised, ready for the read-out
    codes: Tensor | None = None  # z (B, T)
    bit_logits: Tensor | None = None  # o (B, T, H)
    prior_logits: Tensor | None = None  # (B, T, H) with bit_logits, unless the prior is uniform


def token_before(hidden: Tensor, documents: Tensor | None = None) -> Tensor:
    """Activations (B, T, D) of the token before each of ``hidden`` (B, T, D); 0 where a row begins,
    or a document of ``documents`` (B, T).
    """
    before = F.pad(hidden[:, :-1], (0, 0, 1, 0))
    if documents is not None:
        same = documents[:, 1:] == documents[:, :-1]
        before = before * F.pad(same, (1, 0))[..., None]
    return before


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
            elif name == "latent.prior.readout.weight":
                nn.init.zeros_(parameter)
                continue
            elif name.startswith("latent") and name != "latent.zeta":  # the norm rescales zeta
                std = self.config.latent_std
                if name.endswith("post_sampler"):
                    std = self.config.post_sampler_std
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
        positions = Positions(rope)
        if documents is not None:
            positions = within_documents(rope, documents)
        elif padding is not None:
            positions = after_padding(rope, start, padding)
        if not start:
            positions.span_starts = self.span_starts(length, device, documents, padding)
        return positions

    def span_starts(
        self,
        length: int,
        device: torch.device,
        documents: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> Tensor | None:
        """As ``spans.span_starts`` of the design; None for a baseline."""
        if self.latent is None:
            return None
        return span_starts(self.config.latent, length, device, documents, padding)

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
        prior_noise: Tensor | None = None,
        before: Tensor | None = None,
    ) -> Output:
        """Activations after tokens (B, T).

        The tokens follow those already in ``cache``, if it is given. With ``documents`` (B, T),
        integers that number the documents of a row, each document is read as if it stood alone.
        With ``padding`` (B,), that many leading positions of each row, counted from the cache's
        first, are read by no other position; the output there is meaningless. Masks cost time: pass
        None for rows without padding.

        The z of a Free Transformer is sampled from its encoder with ``noise`` (B, T, H), uniform on
        [0, 1) (training, prefill), or drawn from its prior with such ``prior_noise`` (generation),
        or given as ``codes`` (B, T). A baseline takes none of them. After a cache a recurrent prior
        needs ``before`` (B, D), ``Output.hidden`` of the last token that was read. Tokens that read
        one z read the first one's; after a cache ``codes`` must be the same for all of them, and
        ``prior_noise`` NaN for those that keep the z of the token before, but not for the first.

        Raises ValueError if ``documents`` is given with ``cache`` or ``padding``: their rows are of
        one document.
        """
        if cache and documents is not None:
            raise ValueError("a cache holds one document a row, not several")
        start, length = cache[0].length if cache else 0, tokens.shape[1]
        positions = self.positions(start, length, tokens.device, documents, padding)
        x = self.lower(tokens, positions, cache)
        if self.latent is None:
            assert noise is None and codes is None and prior_noise is None, "a baseline has no z"
            return Output(self.upper(x, None, positions, cache))
        sources = [z is not None for z in (noise, codes, prior_noise)]
        assert sum(sources) == 1, "z comes from one of the encoder, the prior, and given codes"
        assert noise is None or not start, "the encoder reads a sequence from its first token"
        if padding is not None:  # the first token after it has none before
            index = torch.arange(start, start + length, device=x.device)
            documents = (index >= padding[:, None]).long()
            before = None if before is None else before * (padding < start)[:, None]
        if prior_noise is not None:
            return Output(
                *self.upper_from_prior(x, prior_noise, positions, documents, cache, before)
            )
        if codes is not None:
            codes = at_starts(codes, positions.span_starts)
            return Output(self.upper(x, self.latent.embed(codes), positions, cache), codes)
        assert noise is not None
        o = self.encode(tokens, x, positions)
        r, codes = self.latent.sample(o, noise)
        hidden = self.upper(x, r, positions, cache)
        codes = at_starts(codes, positions.span_starts)
        return Output(hidden, codes, o, self.prior_logits(x, positions, hidden, documents))

    def encode(self, tokens: Tensor, x: Tensor, positions: Positions) -> Tensor:
        """Logits o (B, T, H) of the bits of z of tokens (B, T), of which the lower half's
        activations are x (B, T, D).

        Every use of the encoder goes through here: what it reads is decided here alone. A separate
        encoder reads embeddings from the decoder's table.
        """
        assert self.latent is not None, "a baseline has no encoder"
        separate = self.config.latent.encoder == Encoder.separate
        o = self.latent.encode(self.embedding(tokens) if separate else x, positions)
        starts = positions.span_starts
        return o if starts is None else o * is_start(starts)[..., None]

    def prior_logits(
        self,
        x: Tensor,
        positions: Positions,
        hidden: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor | None:
        """Logits (B, T, H) of the bits of z under the prior, None for the uniform one, given the
        lower half's activations x (B, T, D). As those of the encoder they are 0 for z that nothing
        reads. A recurrent prior needs ``Output.hidden`` (B, T, D) under the z before, and
        ``documents`` (B, T) where rows have several.
        """
        assert self.latent is not None
        before = None
        if self.latent.recurrent:
            assert hidden is not None, "a recurrent prior follows the upper half"
            before = token_before(hidden, documents)
        logits, starts = self.latent.prior_logits(x, before), positions.span_starts
        if logits is None or starts is None:
            return logits
        return logits * is_start(starts)[..., None]

    def inject(self, n: int, x: Tensor, r: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """What block ``n``, counted from 0, reads of x and r (…, D): the residual stream; the input
        of its keys and values, None if that is the stream too; and the input of a second key and
        value at each position, None if there is none.

        Every use of z goes through here, in training and in inference: another way to inject the
        latent is a change of this method alone.
        """
        design, first = self.config.latent.inject, n == self.config.lower_blocks
        if design in STREAM:
            return (x + r if first else x), None, None
        if design == Inject.memory:
            return x, None, r if first else None
        return x, x + r if first or design == Inject.kv_all else None, None

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
        r: Tensor | None,
        positions: Positions,
        cache: list[LayerCache] | None = None,
    ) -> Tensor:
        """Blocks L/2 + 1 … L, then RMSNorm, of x with the embedding r of z, both (B, T, D); r is
        None for a baseline. Of a span of tokens that read one z, r is that at its first.
        """
        r = None if r is None else at_starts(r, positions.span_starts)
        for n in range(self.config.lower_blocks, self.config.n_layers):
            x, kv, memory = (x, None, None) if r is None else self.inject(n, x, r)
            layer = cache[n] if cache else None
            x = self.blocks[n](x, kv, positions, cache=layer, memory=memory)
        return self.norm(x)

    def upper_from_prior(
        self,
        x: Tensor,
        noise: Tensor,
        positions: Positions,
        documents: Tensor | None = None,
        cache: list[LayerCache] | None = None,
        before: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """``upper`` with z drawn from the prior by ``noise`` (B, T, H), as in ``Latent.draw``, or
        kept where it is NaN: activations (B, T, D) and z (B, T). ``documents`` and ``before`` as in
        ``forward``.

        A recurrent prior makes it go token by token.
        """
        latent = self.latent
        assert latent is not None
        spans = self.config.latent.per != Per.token
        noise = noise_at_starts(noise, positions.span_starts)
        if not latent.recurrent:
            codes = latent.draw(noise, x)
            codes = kept(codes, noise) if spans else codes
            return self.upper(x, latent.embed(codes), positions, cache), codes
        length = x.shape[1]
        cache = cache or self.new_cache(length)
        start = cache[-1].length
        assert before is not None or not start, "a recurrent prior follows the last token read"
        state = torch.zeros_like(x[:, 0]) if before is None else before
        states: list[Tensor] = []
        drawn: list[Tensor] = []
        for t in range(length):
            if documents is not None and t:
                state = state * (documents[:, t] == documents[:, t - 1])[:, None]
            now, here = slice(t, t + 1), positions.at(t, start + t + 1)
            z = latent.draw(noise[:, now], x[:, now], state[:, None])
            if spans and t:
                z = kept(z, noise[:, now], drawn[-1][:, 0])
            drawn.append(z)
            state = self.upper(x[:, now], latent.embed(drawn[-1]), here, cache)[:, 0]
            states.append(state)
        return torch.stack(states, dim=1), torch.cat(drawn, dim=1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits (B, T, V) of ``Output.hidden``."""
        return self.readout(hidden)
