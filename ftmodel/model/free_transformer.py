"""Algorithm 2 of the Free Transformer (Fleuret 2025, arXiv 2510.17558), and its baseline.

Shapes: B batch, T positions, D model width, L blocks, V vocabulary, H latent bits per token.
"""

from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from ftmodel.cache import LayerCache, cached
from ftmodel.config import ModelConfig
from ftmodel.designs.injection import INJECTIONS
from ftmodel.designs.noise import Draws, NoiseSource, check_uniform, readable
from ftmodel.designs.random_prefix import RandomPrefix
from ftmodel.designs.sharing import at_starts, only_starts, token_before
from ftmodel.model.latent import Latent
from ftmodel.positions import Positions, check_like


@dataclass
class Output:
    """Result of a forward pass. A baseline has only ``hidden``. The bits' logits are there if the
    encoder has run, so not with given codes or with z from the prior.
    """

    hidden: Tensor  # (B, T, D), normalised, ready for the read-out
    codes: Tensor | None = None  # z (B, T)
    bit_logits: Tensor | None = None  # o (B, T, H)
    prior_logits: Tensor | None = None  # (B, T, H) with bit_logits, unless the prior is uniform


class FreeTransformer(nn.Module):
    """Decoder whose middle block reads a latent code per token through its keys and values
    (Algorithm 2). With ``config.latent_bits == 0`` it is the baseline: the same blocks, no latent.
    ``config.latent`` may replace parts of the paper's design.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        """Make a model of V = ``vocab_size`` tokens with random weights, drawn from torch's default
        generator. Raises ValueError, naming the field, if no model can be built from ``config``.
        """
        super().__init__()
        config.validate()
        self.config = config
        self.positions = partial(Positions.of, config)
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.inject = INJECTIONS[config.latent.inject](config)
        self.blocks = nn.ModuleList(self.inject.block(n) for n in range(config.n_layers))
        self.latent = Latent(config) if config.latent_bits else None
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.readout = nn.Linear(config.d_model, vocab_size, bias=False)
        if config.tied:
            self.readout.weight = self.embedding.weight
        n = config.random_prefix
        self.prefix = RandomPrefix(n, config.d_model) if n else None
        self.noise_checked = False  # on a GPU only the first noise is
        draw_weights(self, config)

    @property
    def noise_source(self) -> NoiseSource | None:
        """The part that reads noise; None for a plain baseline."""
        return self.latent or self.prefix

    def forward(
        self,
        tokens: Tensor,
        noise: Tensor | None = None,
        at: Positions | None = None,
        cache: list[LayerCache] | None = None,
    ) -> Output:
        """Read tokens (B, T) with z from the encoder, as in training and for a prompt. For given
        codes, and for z from the prior, see inference/passes.py.

        Args:
            noise: (B, T, H), uniform on [0, 1): bit h of z is [noise_h < sigmoid(o_h)];
                (B, T, n) for a baseline with a random prefix of n tokens. Any other baseline takes
                None.
            at: documents and padding, from ``self.positions``; None: there are neither.
            cache: keys and values of earlier tokens, from ``new_cache``; this pass adds its own.
                An encoder needs an empty cache, because it reads from the first token on.

        Raises:
            ValueError: the arguments do not fit the model or each other.
        """
        past = cached(cache)
        at = at or self.positions(tokens, past)
        check_noise(self, tokens, noise, past)
        x = self.lower(tokens, at, cache, None if noise is None else Draws(noise))
        if self.latent is None:
            return Output(self.upper(x, None, at, cache))
        assert noise is not None
        o = self.encode(tokens, x, at)
        r, z = self.latent.sample(o, noise)
        hidden = self.upper(x, r, at, cache)
        return Output(hidden, at_starts(z, at.span_starts), o, self.prior_logits(x, at, hidden))

    def lower(
        self,
        tokens: Tensor,
        at: Positions,
        cache: list[LayerCache] | None = None,
        draws: Draws | None = None,
    ) -> Tensor:
        """Blocks 1 … L/2, below the injection: tokens (B, T) to activations x (B, T, D); (B, n + T,
        D) with a random prefix, which ``draws`` decide.
        """
        x = self.embedding(tokens)
        if self.prefix is not None and draws is not None:
            x = self.prefix(x, draws, at.padding)
        for n in range(self.config.lower_blocks):
            x = self.blocks[n](x, None, at, cache=cache[n] if cache else None)
        return x

    def encode(self, tokens: Tensor, x: Tensor, at: Positions) -> Tensor:
        """Logits o (B, T, H) of the bits of z, given tokens (B, T) and the lower half's activations
        x (B, T, D). Every use of the encoder goes through this method.
        """
        assert self.latent is not None, "a baseline has no encoder"
        if self.latent.encoder.reads_embeddings:
            x = self.embedding(tokens)
        return only_starts(self.latent.encode(x, at), at.span_starts)

    def upper(
        self, x: Tensor, r: Tensor | None, at: Positions, cache: list[LayerCache] | None = None
    ) -> Tensor:
        """Apply blocks L/2 + 1 … L, then RMSNorm, to x and the embedding r of z, both (B, T, D).
        With r None the decoder runs without z, as a baseline does. Tokens that share a code use
        their first token's r. Positions of a random prefix are left out of the result.
        """
        r = None if r is None else at_starts(r, at.span_starts)
        for n in range(self.config.lower_blocks, self.config.n_layers):
            x, kv = (x, None) if r is None else self.inject(n, x, r)
            x = self.blocks[n](x, kv, at, cache=cache[n] if cache else None)
        return self.norm(x[:, at.prefix :] if at.prefix else x)

    def prior_logits(self, x: Tensor, at: Positions, hidden: Tensor | None = None) -> Tensor | None:
        """Prior logits (B, T, H) of the bits of z; None if the prior is uniform. A learned prior
        reads the lower half's activations x (B, T, D), a recurrent one ``Output.hidden`` too.
        """
        assert self.latent is not None
        before = None
        if self.latent.prior.sequential:
            assert hidden is not None, "a recurrent prior follows the upper half"
            before = token_before(hidden, at.documents)
        logits = self.latent.prior(x, before)
        return None if logits is None else only_starts(logits, at.span_starts)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits (B, T, V) of ``Output.hidden``."""
        return self.readout(hidden)


def draw_weights(model: nn.Module, config: ModelConfig) -> None:
    """Draw weights: normal with std 0.02, divided by √(2 L) for the decoder's projections into its
    residual stream (GPT-2). Token embeddings have ``config.embedding_std``, the latent's matrices
    ``config.latent_std``. How soon z is used depends on both: LOG.md, 2026-11-21.
    """
    into_residual = (2 * config.n_layers) ** -0.5
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            gain = name.endswith("weight")  # of an RMSNorm
            nn.init.constant_(parameter, float(gain))
            continue
        std = 0.02
        if name.startswith(("embedding", "prefix")):
            std = config.embedding_std
        elif name == "latent.prior.readout.weight":
            nn.init.zeros_(parameter)
            continue
        elif name.startswith("latent") and name != "latent.zeta":  # the norm rescales zeta
            std = config.latent_std
            if name.endswith("post_sampler"):
                std = config.post_sampler_std
        elif name.endswith(("output.weight", "down.weight")):
            std *= into_residual
        nn.init.normal_(parameter, std=std)


def check_noise(
    model: FreeTransformer,
    tokens: Tensor,
    noise: Tensor | None,
    past: int = 0,
    values: bool = True,
) -> None:
    """Raise ValueError unless ``noise`` (B, T, width) is what the model's noise source takes for
    tokens (B, T), at least one, after ``past`` tokens in a cache. A model without a source takes
    None. ``values`` says whether numbers outside [0, 1) are refused, too: on a CPU all of them, on
    a GPU a model's first noise alone, as reading it waits for the GPU.
    """
    if not tokens.numel():
        raise ValueError(f"tokens: {tuple(tokens.shape)} holds no token")
    source = model.noise_source
    if source is None:
        if noise is not None:
            raise ValueError("noise: a baseline has no latent and takes None")
        return
    shape = *tokens.shape, source.width
    if noise is None:
        if past and source.drawn_once:
            return
        raise ValueError(f"noise: {source.purpose} with noise {shape}, not None")
    check_like("noise", noise, shape, tokens)
    if not noise.is_floating_point():
        raise ValueError(f"noise: its type is {noise.dtype}, not a floating-point one")
    if values and readable(noise) and (noise.is_cpu or not model.noise_checked):
        check_uniform(noise)
        model.noise_checked = True
    if past:
        raise ValueError(f"cache: it holds {past} tokens, but {source.reader} from the first on")
