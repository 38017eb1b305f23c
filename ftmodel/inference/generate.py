"""Generation with a key-value cache: z for the prompt from the encoder, z for new tokens from the
prior or from the caller.

Shapes: B sequences, P prompt tokens, N new tokens, H latent bits, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ftmodel.cache import LayerCache, new_cache
from ftmodel.designs.noise import Draws, check_uniform
from ftmodel.inference.decoder import FastDecoder, PlainDecoder, RoundedWeights, make_decoder
from ftmodel.inference.latent_source import (
    Codes,
    FromPrior,
    LatentSource,
    Noise,
    Pinned,
    draws_of_new_tokens,
    prompt_codes,
)
from ftmodel.model.free_transformer import FreeTransformer, check_noise


def draw_uniform(generator: Generator | Sequence[Generator], rows: int, n_new: int) -> Tensor:
    """Uniform numbers on [0, 1), float64 (N, B), one for each new token of B = ``rows`` sequences,
    from one generator or from one for each row.
    """
    if isinstance(generator, Generator):
        return torch.rand(n_new, rows, dtype=torch.float64, generator=generator)
    columns = [torch.rand(n_new, dtype=torch.float64, generator=own) for own in generator]
    return torch.stack(columns, dim=1)


def sample_token(logits: Tensor, temperature: float, draws: Tensor | None) -> Tensor:
    """One token per row, (B,), of logits (B, V): the most probable one at temperature 0 (``draws``
    None), else the inverse of the distribution function at ``draws`` (B,), uniform on [0, 1). V
    where logits are NaN and there is no such token.

    One random number per row; ``torch.multinomial`` draws one for each of V tokens.
    """
    if draws is None:
        most, token = logits.max(1)  # the first of equals, as argmax, but faster on a CPU
        return token.masked_fill_(most.isnan(), logits.shape[1])
    probabilities = (logits.float() / temperature).softmax(1)
    cumulative = probabilities.cumsum(1, dtype=torch.float64)
    # 1 − draws is in (0, 1]: the threshold is at most the last cumulative sum, and a token of
    # probability 0 is never the first to reach it, if sums are accumulated in order, as on a CPU
    threshold = (1 - draws)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, threshold).squeeze(1)


def check_tokens(tokens: Tensor, vocabulary: int) -> None:
    """Raise ValueError unless all ``tokens`` are below V = ``vocabulary``; see ``sample_token``."""
    if (tokens >= vocabulary).any():
        raise ValueError(
            "no token can be drawn: logits are NaN or infinite, perhaps after the temperature"
        )


FROM_PRIOR = FromPrior()


@dataclass
class ActiveRows:
    """The b ≤ B rows that are not finished: what the model needs to go on with them."""

    model: FreeTransformer
    index: Tensor | slice  # into all rows
    cache: list[LayerCache]
    padding: Tensor | None  # (b,)
    z_draws: Draws | None  # (N, b, H), of the z of new tokens
    token_draws: Tensor | None  # (N, b), uniform numbers
    rounded: RoundedWeights | None
    codes: Tensor | None = None  # (b,), z of the token before the decoder's first

    def __post_init__(self) -> None:
        self.decoder: FastDecoder | PlainDecoder = make_decoder(
            self.model, self.cache, self.padding, self.rounded, self.codes
        )

    def select(self, rows: Tensor, index: Tensor) -> "ActiveRows":
        """Keep only ``rows`` of the b rows, which stand at ``index`` in the whole batch."""
        codes = self.decoder.codes
        return ActiveRows(
            self.model,
            index,
            [layer.select(rows, layer.capacity) for layer in self.cache],
            None if self.padding is None else self.padding[rows],
            None if self.z_draws is None else self.z_draws[:, rows],
            None if self.token_draws is None else self.token_draws[:, rows],
            self.rounded,
            None if codes is None else codes[rows],
        )


@torch.inference_mode()
def generate(
    model: FreeTransformer,
    prompt: Tensor,
    n_new: int,
    *,
    generator: Generator | Sequence[Generator],
    z: LatentSource = FROM_PRIOR,
    temperature: float = 1.0,
    padding: Tensor | None = None,
    until: Callable[[Tensor], Tensor] | None = None,
    rounded: RoundedWeights | None = None,
) -> Tensor:
    """Continue prompts (B, P), P ≥ 1, by ``n_new`` sampled tokens; returns (B, P + n_new), or fewer
    if ``until`` ends it earlier.

    Args:
        generator: CPU generator that draws z, if ``z`` needs it, and then the tokens; or one for
            each row, which draws that row's tokens independently of the others, and no z. All
            numbers are drawn at the start, however soon ``until`` ends a row.
        z: where z comes from: ``FromPrior``, ``Pinned``, ``Codes`` or ``Noise``; all but ``Codes``
            may also draw a random prefix. Any other baseline has no z and takes only ``FromPrior``,
            which it ignores.
        temperature: of the token distribution; 0 takes the most probable token.
        padding: (B,), how many of the first positions of each prompt are padding, fewer than P, so
            that prompts may differ in length; padding may hold any token.
        until: called after each token with all new ones, (B, n); returns (B,), which rows are
            finished. A finished row is not computed any more: it repeats its last token, whatever
            ``until`` says later. Generation ends when all are finished.
        rounded: this model's rounded weights, which replace its own for new tokens.

    Raises:
        ValueError: a prompt is empty, the sequences would not fit the model's context, the
            temperature is negative, ``z`` does not fit the model, the batch or ``generator``, there
            is not one generator for each row, ``rounded`` weights do not fit the model, or no token
            can be drawn: logits are NaN or, divided by a temperature above 0, +∞ or all −∞.
    """
    check_arguments(model, prompt, n_new, generator, z, temperature, padding)
    b, p = prompt.shape
    active, hidden = prefill(model, prompt, n_new, generator, z, temperature, padding, rounded)
    tokens = torch.cat((prompt, prompt.new_empty(b, n_new)), dim=1).long()
    vocabulary = model.readout.out_features
    for i in range(n_new):
        draws = None if active.token_draws is None else active.token_draws[i]
        token = sample_token(active.decoder.logits(hidden), temperature, draws)
        tokens[active.index, p + i] = token
        if until is not None:
            check_tokens(token, vocabulary)
            finished = until(tokens[:, p : p + i + 1]).to(prompt.device)[active.index]
            if finished.any():
                index = torch.arange(b, device=prompt.device)[active.index]
                tokens[index[finished], p + i + 1 :] = token[finished, None]
                left = (~finished).nonzero().squeeze(1)
                if not len(left):
                    return tokens[:, : p + i + 1]
                active = active.select(left, index[left])
                token, hidden = token[left], hidden[left]
        if i + 1 < n_new:
            token.clamp_(max=vocabulary - 1)  # checked once at the end: a check waits for the GPU
            z_draws = None if active.z_draws is None else active.z_draws[i]
            hidden = active.decoder.read(token, z_draws, hidden)
    check_tokens(tokens[:, p:], vocabulary)
    return tokens


def check_arguments(
    model: FreeTransformer,
    prompt: Tensor,
    n_new: int,
    generator: Generator | Sequence[Generator],
    z: LatentSource,
    temperature: float,
    padding: Tensor | None,
) -> None:
    """Raise ValueError if ``generate`` cannot run with these arguments."""
    if prompt.dim() != 2 or not prompt.numel():
        raise ValueError(
            f"prompt: its shape is {tuple(prompt.shape)}, not (B, P) with at least one token"
        )
    rows, longest = prompt.shape
    if padding is not None:
        if not 0 <= int(padding.min()) <= int(padding.max()) < longest:
            raise ValueError(f"padding: a prompt of {longest} positions must keep a token")
        longest -= int(padding.min())
    if n_new < 0:
        raise ValueError(f"n_new: {n_new} is negative")
    if longest + n_new - 1 > model.config.context:
        raise ValueError(
            f"{longest} prompt tokens and {n_new} new ones exceed the context of "
            f"{model.config.context}"
        )
    if temperature < 0:
        raise ValueError(f"a temperature of {temperature} is negative")
    kinds = FromPrior if model.noise_source is None else FromPrior | Pinned | Noise
    if model.latent is None and not isinstance(z, kinds):
        raise ValueError("a baseline has no z to pin")
    if isinstance(z, Codes) and model.config.latent.shared_codes:
        raise ValueError(
            "codes pin single tokens, but several tokens read one code: pin noise instead"
        )
    if not isinstance(generator, Generator) and len(generator) != rows:
        raise ValueError(f"{len(generator)} generators cannot draw the tokens of {rows} sequences")


def prefill(
    model: FreeTransformer,
    prompt: Tensor,
    n_new: int,
    generator: Generator | Sequence[Generator],
    z: LatentSource,
    temperature: float,
    padding: Tensor | None,
    rounded: RoundedWeights | None,
) -> tuple[ActiveRows, Tensor]:
    """Draw all random numbers and read the prompt, with z from the encoder; returns all rows and
    the activations (B, D) that predict their first new token. Arguments as in ``generate``.
    """
    (b, p), device = prompt.shape, prompt.device
    padding = padding.to(device) if padding is not None and padding.any() else None
    source, z_draws, prompt_draws = model.noise_source, None, None
    if source is not None:
        z_draws = z.draws((b, p + n_new, source.width), p, generator, padding)
        z_draws = z_draws.apply(lambda tensor: tensor.to(device))
        prompt_draws = z_draws[:, :p]
        if isinstance(z, Noise) and z.codes is None:  # at padding it may be anything
            values = z.values
            if padding is not None:
                index = torch.arange(values.shape[1], device=values.device)
                values = values[index >= padding.to(values.device)[:, None]]
            check_uniform(values)
        check_noise(model, prompt, prompt_draws.noise, values=False)
    token_draws = draw_uniform(generator, b, n_new).to(device) if temperature else None
    cache = new_cache(model.config, p + n_new)
    at = model.positions(prompt, padding=padding)
    x = model.lower(prompt, at, cache, prompt_draws)
    r, later_draws = None, None
    if model.latent is not None:
        assert z_draws is not None and prompt_draws is not None, "a latent is a noise source"
        o = model.encode(prompt, x, at)
        codes = prompt_codes(model, prompt, prompt_draws, x, o, at)
        r = model.latent.embed(codes)
        later_draws = draws_of_new_tokens(model, z_draws[:, p:], codes, padding)
        later_draws = later_draws.apply(lambda tensor: tensor.transpose(0, 1))  # (N, B, …)
    hidden = model.upper(x, r, at, cache)
    # without codes: the first new token keeps none, see draws_of_new_tokens
    active = ActiveRows(model, slice(None), cache, padding, later_draws, token_draws, rounded)
    return active, hidden[:, -1]
