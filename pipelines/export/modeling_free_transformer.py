"""A Free Transformer for transformers' ``generate`` and whatever calls ``forward``.

``generate`` samples z of the prompt from the encoder, which reads the whole prompt, and z of new
tokens from the prior. ``forward`` draws every z from the prior: the encoder would read the tokens
that its caller wants to score.

Shapes: B sequences, T positions, S positions from the first one on, cached ones and padding
included, H latent bits, V vocabulary.
"""

# transformers' own classes do not agree on these signatures
# mypy: disable-error-code="arg-type, misc, override"

from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.generation.configuration_utils import GenerationMode
from transformers.modeling_outputs import CausalLMOutputWithPast

from ftmodel.cache import LayerCache
from ftmodel.designs.noise import check_uniform, readable
from ftmodel.inference.passes import from_prior
from ftmodel.layers import use_kernels
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.latent import Latent
from pipelines.export.configuration_free_transformer import FreeTransformerConfig

IGNORED = {"return_dict": True, "output_attentions": False, "output_hidden_states": False}


class CachedLayer(LayerCache):
    """A layer of transformers' cache, as a block uses it for one forward pass."""

    def __init__(self, cache: DynamicCache, index: int) -> None:
        self.cache, self.index = cache, index
        self.length = cache.get_seq_length(index)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.cache.update(k, v, self.index)
        self.length = keys.shape[2]
        return keys, values


def left_padding(mask: Tensor | None, rows: int, length: int) -> Tensor | None:
    """Leading positions (B,) that a mask (B, S) leaves out, or None; ValueError for other masks."""
    if mask is None:
        return None
    if mask.shape != (rows, length):
        raise ValueError(f"attention_mask must be ({rows}, {length}), not {tuple(mask.shape)}")
    read = mask.bool()
    if (read[:, :-1] & ~read[:, 1:]).any() or not read[:, -1].all():
        raise ValueError("right padding: attention_mask may leave out only leading positions")
    return None if read.all() else (~read).sum(1)


def uniform_noise(
    given: Tensor | None,
    size: tuple[int, int, int],
    start: int,
    padding: Tensor | None,
    device: torch.device,
) -> Tensor:
    """Noise of ``size`` (B, T, H) for positions start, start + 1, …: drawn here, or their part of
    ``given`` noise, which ``FreeTransformerForCausalLM.forward`` describes.
    """
    rows, length, bits = size
    if given is None:
        return torch.rand(size, device=device)
    end = start + length
    fits = given.dim() in (2, 3) and given.shape[-1] == bits and given.shape[-2] >= end
    if not fits or (given.dim() == 3 and (not len(given) or rows % len(given))):
        raise ValueError(
            f"latent_noise must be ({end}, {bits}) or ({rows}, {end}, {bits}) or longer, "
            f"not {tuple(given.shape)}"
        )
    if given.is_cpu and readable(given):
        check_uniform(given, "latent_noise")
    if given.dim() == 3:
        return given[:, start:end].to(device).repeat_interleave(rows // len(given), dim=0)
    positions = torch.arange(start, end, device=device).expand(rows, -1)
    if padding is not None:
        positions = (positions - padding[:, None]).clamp(min=0)
    return given.to(device)[positions]


def check_generation(
    settings: GenerationConfig, assistant: object, cache: object, tokens: Tensor | None
) -> None:
    """Raise ValueError if ``generate`` cannot run like this."""
    mode = settings.get_generation_mode(assistant)
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        name = mode.value.replace("_", " ")
        raise ValueError(
            f"{name}: every sequence has its own z; only greedy search and sampling work"
        )
    if settings.prefill_chunk_size is not None:
        raise ValueError("chunked prefill: the encoder reads the whole prompt at once")
    if settings.use_cache is False:
        raise ValueError("use_cache=False: the encoder would read the new tokens")
    if settings.cache_implementation not in (None, "dynamic"):
        raise ValueError(
            f"cache_implementation={settings.cache_implementation!r}: only DynamicCache works"
        )
    length = check_cache(cache)
    if length and (
        tokens is None
        or tokens.shape[1] != length + 1
        or not getattr(cache, "prompt_encoded", False)
    ):
        raise ValueError(
            "prefill after a cache: the encoder reads the whole prompt at once; to go on from "
            "a cache of generate, give all its tokens and the last new token"
        )


def check_cache(cache: object) -> int:
    """Positions in a cache, None or a DynamicCache; raises ValueError for another."""
    if cache is None:
        return 0
    if not isinstance(cache, DynamicCache):
        raise ValueError(f"{type(cache).__name__}: only DynamicCache works")
    return cache.get_seq_length()


class FreeTransformerForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = FreeTransformerConfig
    _tied_weights_keys = {"model.readout.weight": "model.embedding.weight"}  # noqa: RUF012
    _supports_sdpa = True

    def __init__(self, config: FreeTransformerConfig) -> None:
        super().__init__(config)
        self.model = use_kernels(FreeTransformer(config.architecture(), config.vocab_size))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Latent):
            if hasattr(module, "zeta"):
                nn.init.normal_(module.zeta, std=0.02)
            std = self.config.architecture().post_sampler_std
            nn.init.normal_(module.post_sampler, std=std)
            if hasattr(module.prior, "readout"):
                nn.init.zeros_(module.prior.readout.weight)  # type: ignore[union-attr]

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embedding

    def get_output_embeddings(self) -> nn.Module:
        return self.model.readout

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: DynamicCache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        latent_noise: Tensor | None = None,
        encode_prompt: bool = False,
        labels: None = None,
        **others: Any,
    ) -> CausalLMOutputWithPast:
        """Logits (B, T, V) after tokens (B, T) that follow the ones in ``past_key_values``; with
        ``logits_to_keep`` = n above 0 only the last n, (B, n, V).

        Args:
            attention_mask: (B, S), 0 at the leading positions that are padding.
            latent_noise: uniform on [0, 1), for all positions. (S, H) is shared by all rows and
                counted from each row's first token after its padding; (B', S, H), B' a divisor of
                B, counts padding, and B / B' neighbouring rows share it. None draws it.
            encode_prompt: z from the encoder, which reads all the tokens, not from the prior.

        Raises ValueError for what it does not compute.
        """
        if labels is not None:
            raise ValueError(
                "labels=: a cross-entropy given one z is not a bound on the likelihood"
            )
        others.pop("cache_position", None)  # transformers 4's, which the cache knows
        for name, value in others.items():
            if value is not None and value is not IGNORED.get(name):
                raise ValueError(f"{name}= is not supported")
        start = check_cache(past_key_values)
        if encode_prompt and start:
            raise ValueError("prefill after a cache: the encoder reads the whole prompt at once")
        cache = past_key_values
        if cache is None and use_cache:
            cache = DynamicCache(config=self.config)
        rows, length = input_ids.shape
        padding = left_padding(attention_mask, rows, start + length)
        size = rows, length, self.config.latent_bits
        noise = uniform_noise(latent_noise, size, start, padding, input_ids.device)
        at = self.model.positions(input_ids, start, padding=padding)
        layers = None
        if cache is not None:
            layers = [CachedLayer(cache, i) for i in range(self.config.n_layers)]
        if encode_prompt:
            out = self.model(input_ids, noise, at, layers)
        else:
            before = getattr(cache, "last_hidden", None)
            out = from_prior(self.model, input_ids, noise, at, layers, before)
        if cache is not None:
            cache.last_hidden = out.hidden[:, -1]  # type: ignore[attr-defined]
        if encode_prompt and cache is not None:
            cache.prompt_encoded = True  # type: ignore[attr-defined]
        logits = self.model.logits(out.hidden[:, -logits_to_keep:])
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)

    def generate(
        self,
        inputs: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        *,
        latent_noise: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """transformers' ``generate``, by greedy search or sampling; z of the prompt comes from the
        encoder, z of new tokens from the prior.

        ``latent_noise`` is as in ``forward``; B counts all sequences, a prompt's sequences are
        neighbours, and the last new token needs none. Without it all z are drawn independently.

        Raises ValueError for what would need z of tokens that are not read as one prompt.
        """
        settings, _ = self._prepare_generation_config(generation_config, **kwargs)
        tokens = kwargs.get("input_ids") if inputs is None else inputs
        cache = kwargs.get("past_key_values")
        check_generation(settings, kwargs.get("assistant_model"), cache, tokens)
        # not as a tensor, whose rows would be repeated for the sequences of a prompt
        noise = None if latent_noise is None else (latent_noise,)
        return super().generate(inputs, generation_config, latent_noise=noise, **kwargs)

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        past_key_values: DynamicCache | None = None,
        latent_noise: tuple[Tensor] | None = None,
        tokenizer: object = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        # ``tokenizer`` is for stop_strings, which ``generate`` has read, and not for ``forward``
        prepared = super().prepare_inputs_for_generation(
            input_ids, past_key_values=past_key_values, **kwargs
        )
        prepared["latent_noise"] = None if latent_noise is None else latent_noise[0]
        prepared["encode_prompt"] = not check_cache(past_key_values)
        return prepared
