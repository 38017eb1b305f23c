"""Every setting of a model: its architecture, which fixes all parameter tensors except the
vocabulary size, and the design of its latent.

The file has three parts. Limits are metadata of a setting, which is a field of a dataclass: one
check and the docs read them. ``LatentDesign`` names the parts of a latent, the paper's by default,
and what follows from them without a tensor; ftmodel/designs/ computes them. ``ModelConfig`` has the
rest. Designs are compared by ==, not ``is``: an exported model's code may be loaded twice in one
process.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from math import inf, isclose, sqrt
from operator import ge, gt, le, lt
from typing import Any, get_type_hints


def given(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not null."""
    return {name: value for name, value in vars(settings).items() if value is not None}


LATENT_ONLY = {"latent_only": True}  # marks a setting that only a Free Transformer reads
COMPARISONS = {"at_least": ge, "above": gt, "at_most": le, "below": lt}


def limits(why: str = "", **bounds: float) -> dict[str, Any]:
    """Metadata of a field; ``bounds`` are named as in ``COMPARISONS``, ``why`` ends the message."""
    assert bounds.keys() <= COMPARISONS.keys()
    return {"limits": bounds, "why": why}


def limited(default: Any, why: str = "", latent_only: bool = False, **bounds: float) -> Any:
    """A field with a default; None, where its type allows it, has no limits."""
    return field(
        default=default, metadata=limits(why, **bounds) | (LATENT_ONLY if latent_only else {})
    )


def latent_only(settings: type, prefix: str) -> dict[str, Any]:
    """The settings of a dataclass that a baseline does not read, with their defaults, by dotted
    key. They are marked with ``LATENT_ONLY``, here or in a dataclass that a field has as its type.
    """
    found: dict[str, Any] = {}
    for setting in fields(settings):
        key, default = f"{prefix}.{setting.name}", setting.default
        if setting.metadata.get("latent_only"):
            made = setting.default_factory
            found[key] = default if made is MISSING else made()
        elif isinstance(setting.type, type) and is_dataclass(setting.type):
            found |= latent_only(setting.type, key)
    return found


def in_words(setting: "Field[Any]") -> str:
    """The limits of a field, as "at least 257 and at most 131,072"; "" if there are none."""
    bounds = setting.metadata.get("limits", {})
    return " and ".join(f"{name.replace('_', ' ')} {bound:,}" for name, bound in bounds.items())


def check_limits(settings: Any) -> None:
    """Raise ValueError, naming field, value and limits, for a value of a dataclass outside them."""
    for setting in fields(settings):
        bounds, value = setting.metadata.get("limits"), getattr(settings, setting.name)
        if bounds is None or value is None:
            continue
        if not abs(value) < inf:
            raise ValueError(f"{setting.name}: {value} is not a finite number")
        if not all(COMPARISONS[name](value, bound) for name, bound in bounds.items()):
            why = setting.metadata["why"]
            raise ValueError(
                f"{setting.name}: {value} must be {in_words(setting)}{why and f'; {why}'}"
            )


class Encoder(StrEnum):
    """What gives the posterior q(z | x). Both read later tokens; neither runs for new tokens."""

    # one non-causal block that ζ queries, over the activations of the lower half (the paper)
    shared = "shared"
    # a non-causal Transformer of its own over the token embeddings, without ζ: the conditional VAE
    # of the paper's Fig. 1b. It reads the decoder's table of embeddings
    separate = "separate"


class Inject(StrEnum):
    """What the embedding r of z is added to."""

    kv = "kv"  # r is added to the input of the block's keys and values (the paper)
    residual = "residual"  # r is added to the residual stream, hence to the queries too
    # r is added to the input of the keys and values of every block from there on (Fang et al. 2021)
    kv_all = "kv_all"
    # r is added to the token embeddings, before all blocks (OPTIMUS, Li et al. 2020)
    embedding = "embedding"
    # r is added to nothing. In the block that reads z each position has a second key and value,
    # projected from the block's norm of r alone (OPTIMUS)
    memory = "memory"


class Per(StrEnum):
    """How many tokens share a latent code. A span of tokens uses its first token's code."""

    token = "token"  # each token has its own (the paper)
    # all tokens of a row, or of a document under document_mask, share H bits
    sequence = "sequence"
    # a fixed number of tokens, counted from the start of the row or document; see the setting every
    every = "every"


class Map(StrEnum):
    """How z becomes r."""

    table = "table"  # r is a row for each of the 2^H codes, H up to 24 (the paper)
    linear = "linear"  # r = Σ ± a vector for each bit, H up to 64


class Prior(StrEnum):
    """The prior: generation draws z from it, and the KL is taken to it."""

    uniform = "uniform"  # all 2^H codes are equally likely (the paper)
    # each bit has its own probability, read by an RMSNorm and a linear map from the causal
    # activations that the block reads beside z
    learned = "learned"
    # as learned, but read from the upper half's state at the token before as well, so that z may
    # depend on earlier z (Chung et al. 2015)
    recurrent = "recurrent"


class Gradient(StrEnum):
    """How the gradient of r reaches the logits of the bits. The last two are negative controls,
    which public re-implementations of the paper use.
    """

    all_codes = "all_codes"  # straight-through over all codes (the paper)
    # the sampled code alone: ρ·r times the gradient of log q(z), where ρ is the gradient at r. It
    # has the expectation of all_codes if ρ does not depend on z. A negative control
    score = "score"
    # the sampled code alone: ρ·r times the gradient of q(z). A negative control
    sampled_code = "sampled_code"


class FreeBits(StrEnum):
    """What the KL is averaged over before the hinge max(0, KL − κ)."""

    token = "token"  # over nothing (the paper)
    sequence = "sequence"  # over a row, or over a document under document_mask
    # over the rows of a batch, at each position (Kingma et al. 2016)
    position = "position"
    batch = "batch"  # over all tokens of a batch

    @property
    def needs_whole_batch(self) -> bool:
        return self in (FreeBits.position, FreeBits.batch)


DEFAULT_ENCODER_LAYERS = 2  # in a separate encoder
MAX_BITS = {Map.table: 24, Map.linear: 64}


@dataclass
class LatentDesign:
    """Which parts a latent is made of: how z is inferred, embedded, drawn, injected, limited and
    learned. Defaults are the paper's. A setting may be given as its name, a string.
    """

    encoder: Encoder = Encoder.shared  # what gives the posterior q(z | x)
    # number of blocks of a separate encoder; null: 2
    encoder_layers: int | None = limited(None, at_least=1, at_most=1 << 10)
    inject: Inject = Inject.kv  # where z enters the decoder
    per: Per = Per.token  # which tokens share a latent code
    # the number of tokens that share a latent code with per: every
    every: int | None = limited(None, "1 is per: token", at_least=2)
    map: Map = Map.table  # how z becomes r
    # what z is drawn from in generation, and what the KL is taken to
    prior: Prior = Prior.uniform
    # what the KL is averaged over before the hinge max(0, KL − κ)
    free_bits: FreeBits = FreeBits.token
    # how the gradient of r reaches the logits of the bits
    gradient: Gradient = Gradient.all_codes

    def __post_init__(self) -> None:
        """Raise ValueError, naming the setting, for a word that is none of its values."""
        for name, kind in KINDS.items():
            value = getattr(self, name)
            if value not in [*kind]:
                raise ValueError(f"{name}: {value!r} is not one of {', '.join(kind)}")
            setattr(self, name, kind(value))
        if self.encoder == Encoder.separate and self.encoder_layers is None:
            self.encoder_layers = DEFAULT_ENCODER_LAYERS

    def changed(self, changes: Mapping[str, Any]) -> "LatentDesign":
        """Copy this design with ``changes``, without settings of what they replace."""
        old = asdict(self)
        if changes.get("encoder") == Encoder.shared:
            old["encoder_layers"] = None
        if changes.get("per", Per.every) != Per.every:
            old["every"] = None
        return LatentDesign(**old | dict(changes))

    def validate(self, bits: int = 0, context: int = 0) -> None:
        """Raise ValueError, naming the setting, if it contradicts another setting or, in a model
        with H = ``bits``, the ``context`` in tokens.
        """
        check_limits(self)
        if self.per == Per.every and self.every is None:
            raise ValueError("every: required when per is every")
        if self.every is not None and self.per != Per.every:
            raise ValueError(f"every: {self.every}, but there is one latent code per {self.per}")
        if self.per == Per.sequence and self.prior == Prior.recurrent:
            raise ValueError(
                "prior: recurrent needs several latent codes, but per: sequence has one"
            )
        layers = self.encoder_layers
        if layers is not None and self.encoder == Encoder.shared:
            raise ValueError(f"encoder_layers: {layers}, but a shared encoder is one block")
        if bits and (self.every or 0) >= context:
            raise ValueError(
                f"every: {self.every} is not below the context of {context}; "
                "for one latent code per sequence, set latent.per: sequence"
            )

    @property
    def max_bits(self) -> int:
        """The largest H."""
        return MAX_BITS[self.map]

    def vectors(self, bits: int) -> int:
        """The number of vectors whose sum is r."""
        return bits if self.map == Map.linear else 1

    @property
    def n_encoder_blocks(self) -> int:
        return self.encoder_layers or 1

    @property
    def copies_block(self) -> bool:
        """Whether the encoder may begin as a copy of a block of the decoder."""
        return self.encoder == Encoder.shared

    @property
    def first_block(self) -> int | None:
        """The block that reads z, counted from 0; None if the model's configuration decides it."""
        return 0 if self.inject == Inject.embedding else None

    @property
    def shared_codes(self) -> bool:
        """Whether several tokens share a latent code."""
        return self.per != Per.token

    @property
    def one_code(self) -> bool:
        """Whether all tokens of a sequence share one latent code."""
        return self.per == Per.sequence

    def tokens_per_code(self, context: int) -> int:
        """How many tokens share a latent code, in a sequence of ``context`` tokens."""
        return {Per.token: 1, Per.sequence: context, Per.every: self.every or 1}[self.per]

    @property
    def hinge_at_token(self) -> bool:
        """Whether each token has its own code and its own hinge, at least in the mean over rows.
        Then no position has more than κ free bits.
        """
        return not self.shared_codes and self.free_bits in (FreeBits.token, FreeBits.position)

    @property
    def uniform_prior(self) -> bool:
        return self.prior == Prior.uniform


KINDS: dict[str, type[StrEnum]] = {
    name: kind
    for name, kind in get_type_hints(LatentDesign).items()
    if isinstance(kind, type) and issubclass(kind, StrEnum)
}


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
