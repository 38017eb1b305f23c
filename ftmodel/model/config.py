"""Architecture of a model: all that fixes its parameter tensors, except the vocabulary size."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import isclose, sqrt

from ftmodel.designs.design import LatentDesign
from ftmodel.model.limits import LATENT_ONLY, check_limits, limited, limits

# settings in which a decoder may differ from the one whose weights it takes
ADAPTABLE = ("context", "document_mask", "embedding_std")
LAYERS = limits(at_least=1, at_most=1 << 10)
WIDEST = 1 << 20  # so that no tensor's size overflows 64 bits
WIDTH = limits(at_least=1, at_most=WIDEST)


@dataclass
class ModelConfig:
    """Architecture of the decoder, baseline and Free Transformer alike.

    ``latent_bits`` is the paper's H; 0 means no latent, which is the baseline. The vocabulary
    size is not here: it belongs to the tokenizer of the data.
    """

    n_layers: int = field(metadata=LAYERS)  # L, the number of blocks
    d_model: int = field(metadata=WIDTH)  # D, the width of the residual stream
    n_heads: int = field(metadata=WIDTH)  # query heads
    n_kv_heads: int = field(metadata=WIDTH)  # key and value heads
    ffn_width: int = field(metadata=WIDTH)  # hidden width of SwiGLU
    context: int = field(metadata=WIDTH)  # T, the longest sequence in tokens
    tied: bool = True  # one matrix for embedding and read-out
    # H, the bits of a latent code, up to 24 with map: table and 64 with map: linear; 0: no latent
    latent_bits: int = field(default=0, metadata=LATENT_ONLY)
    latent: LatentDesign = field(default_factory=LatentDesign, metadata=LATENT_ONLY)
    head_width: int | None = None  # E, the width of a head; null: d_model / n_heads
    qkv_bias: bool = False  # biases of the projections to queries, keys and values, as in Qwen2
    qk_norm: bool = False  # RMSNorm of each head's queries and keys before RoPE, as in Qwen3
    document_mask: bool = False  # keep attention, the encoder's too, within a document
    # the block that reads z, counted from 1; null: the paper's, L/2 + 1
    latent_block: int | None = field(default=None, metadata=LATENT_ONLY)
    rope_theta: float = limited(10000.0, at_least=1)  # base of RoPE's frequencies
    # Llama 3.1's longer context: the factor that slows RoPE's slow rotations down
    rope_factor: float = limited(1.0, at_least=1)
    # rotations per old context up to which RoPE is slowed down fully
    rope_low_freq: float = limited(1.0, above=0)
    # rotations per old context from which RoPE is not slowed down
    rope_high_freq: float = limited(4.0, above=0)
    # the context that the model was first trained with
    rope_old_context: int = limited(8192, at_least=1, at_most=WIDEST)
    norm_eps: float = limited(1e-5, above=0)  # added to the mean square in RMSNorm
    # n, the random tokens before each row of a baseline (Nagarajan et al. 2025), which all tokens
    # of the row read. They come on top of the context. Set it for an arm, not here
    random_prefix: int = limited(0, at_least=0)
    # standard deviation of the initial token embeddings
    embedding_std: float = limited(0.02, above=0)
    # standard deviation of the initial encoder block, its readout and the post-sampler
    latent_std: float = limited(0.02, latent_only=True, above=0)

    def __post_init__(self) -> None:
        if isinstance(self.latent, Mapping):  # from a manifest or an exported folder
            self.latent = LatentDesign(**self.latent)

    def validate(self) -> None:
        """Raise ValueError, naming the field, if no model can be built from these numbers."""
        check_limits(self)
        if self.rope_low_freq >= self.rope_high_freq:
            raise ValueError(
                f"rope_high_freq: {self.rope_high_freq} must be more than rope_low_freq "
                f"{self.rope_low_freq}"
            )
        if self.head_width is None and self.d_model % self.n_heads:
            raise ValueError(f"n_heads: {self.n_heads} does not divide d_model {self.d_model}")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_kv_heads: {self.n_kv_heads} does not divide n_heads {self.n_heads}"
            )
        if not 1 <= self.head_channels * self.n_heads <= WIDEST:
            raise ValueError(
                f"head_width: {self.head_channels} times n_heads {self.n_heads} is outside "
                f"1 … {WIDEST}"
            )
        if self.head_channels % 2:
            name = "n_heads" if self.head_width is None else "head_width"
            raise ValueError(f"{name}: RoPE needs an even head width, not {self.head_channels}")
        try:
            self.latent.validate(self.latent_bits, self.context)
        except ValueError as error:
            raise ValueError(f"latent.{error}") from None
        if not 0 <= self.latent_bits <= self.latent.max_bits:
            which = "" if self.latent == LatentDesign() else f" of latent.map {self.latent.map}"
            raise ValueError(
                f"latent_bits: {self.latent_bits} is outside 0 … {self.latent.max_bits}{which}"
            )
        if self.latent_block is not None and not 1 <= self.latent_block <= self.n_layers:
            raise ValueError(f"latent_block: {self.latent_block} is outside 1 … {self.n_layers}")
        if self.random_prefix >= self.context:
            raise ValueError(
                f"random_prefix: {self.random_prefix} must be less than the context {self.context}"
            )
        if self.random_prefix and self.document_mask:
            raise ValueError(
                f"random_prefix: {self.random_prefix} tokens stand before a whole row, but "
                "document_mask keeps attention within documents"
            )
        if not self.latent_bits:
            return
        if self.random_prefix:
            raise ValueError(f"random_prefix: {self.random_prefix}, but a Free Transformer has z")
        first = self.latent.first_block
        if first is not None and self.latent_block not in (None, first + 1):
            raise ValueError(
                f"latent_block: {self.latent_block}, but latent.inject: {self.latent.inject} is "
                f"before block {first + 1}"
            )
        if first is None and self.latent_block is None and self.n_layers % 2:
            raise ValueError(
                f"n_layers: {self.n_layers} is odd, but a Free Transformer injects its latent "
                "half-way; choose a block with latent_block"
            )

    def decoder_differences(self, other: "ModelConfig") -> dict[str, tuple[float, float]]:
        """The fields, with both values, in which the decoders of two models with one vocabulary
        differ so that neither can take the other's weights and compute the same. Numbers are
        compared to 1e-6, because GGUF files store them in float32.
        """
        ours, theirs = ({**vars(c), "head_width": c.head_channels} for c in (self, other))
        pairs = {
            each.name: (ours[each.name], theirs[each.name])
            for each in fields(self)
            if each.name not in ADAPTABLE and not each.metadata.get("latent_only")
        }
        return {name: (a, b) for name, (a, b) in pairs.items() if not isclose(a, b, rel_tol=1e-6)}

    @property
    def head_channels(self) -> int:
        """E, the width of a head."""
        return self.d_model // self.n_heads if self.head_width is None else self.head_width

    @property
    def post_sampler_std(self) -> float:
        """Initial std of the post-sampler, for r of ``latent_std``: a linear r sums H vectors."""
        return self.latent_std / sqrt(self.latent.vectors(self.latent_bits))

    @property
    def noise_width(self) -> int:
        """Random numbers on [0, 1) per token: H to draw z, or n for a baseline with a random
        prefix, which uses only the numbers of a row's first token.
        """
        return self.latent_bits or self.random_prefix

    @property
    def latent_capacity(self) -> float:
        """The most that z can carry, bits per token of a whole context: H, or its share."""
        return self.latent_bits / self.latent.tokens_per_code(self.context)

    @property
    def n_encoder_blocks(self) -> int:
        """Number of blocks of the encoder; a baseline has none."""
        return self.latent.n_encoder_blocks if self.latent_bits else 0

    @property
    def lower_blocks(self) -> int:
        """Number of blocks before the one that reads z; a shared encoder reads their output."""
        if self.latent_bits and self.latent.first_block is not None:
            return self.latent.first_block
        return self.n_layers // 2 if self.latent_block is None else self.latent_block - 1
