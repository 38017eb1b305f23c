"""Continues a few prompts, the same for every arm, with several z.

`measure_generations`: samples to look at, on the target task and on text, with numbered pinned z
and with fresh z. `measure_steering`: whether pinned z steer the continuations of text.

Shapes: L prompt tokens, N new tokens, T = L + N, R draws with each z, H latent bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Generator, Tensor

from ftmodel.analysis.statistics import permutation_test
from ftmodel.analysis.use_of_z import distances, mean_distance, steering_test
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import FromPrior, LatentSource, Noise
from ftmodel.mapper import pack_bits
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.synthetic import target
from pipelines.artifacts.packing import held_out
from pipelines.artifacts.results import Estimate, Generations, Steering
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate.measurement import Context

PINNED = 6  # different z, by number
# indices of the streams of GROUPS and TEXT; target.py has 0
PINNED_Z, FRESH_Z_AND_TOKENS, PROMPTS = 1, 2, 3


@dataclass(frozen=True)
class Sampling:
    purpose: Purpose
    prompts: int
    beginning: int  # tokens of a prompt, at most
    new: int  # tokens, at most
    draws: int  # with each pinned z, and as many with fresh z
    temperature: float = 1.0


LETTERS = Sampling(Purpose.GROUPS, 4, target.PROMPT, target.LENGTH, draws=6)
TEXT = Sampling(Purpose.TEXT, 3, 32, 96, draws=4, temperature=0.8)


def measure_generations(context: Context) -> list[Generations]:
    model, seed = context.model, context.settings.seed
    if context.data.source == "target":
        sampling, prompts = LETTERS, letters(seed)
        decode: Callable[[Tensor], str] = target.decode
    else:
        sampling, prompts = TEXT, beginnings(context.shards, model.config.context, TEXT.prompts)
        decode = text_decoder(context.shards)
    of_pinned = generator(seed, sampling.purpose, PINNED_Z)
    length = sampling.beginning + sampling.new
    pinned = torch.rand(PINNED, length, model.config.noise_width, generator=of_pinned)
    rng = generator(seed, sampling.purpose, FRESH_Z_AND_TOKENS)
    samples = []
    for prompt in prompts:
        groups = [
            [decode(ids[len(prompt) :]) for ids in group]
            for group in continuations(model, prompt.to(context.device), pinned, sampling, rng)
        ]
        samples.append(Generations(decode(prompt), groups[0], groups[1:]))
    return samples


def text_decoder(shards: Shards) -> Callable[[Tensor], str]:
    tokenizer = shards.tokenizer()
    return lambda ids: tokenizer.decode(ids.tolist())


def letters(seed: int) -> list[Tensor]:
    """Prompts (2,) of the target task, each with another letter."""
    rng = generator(seed, LETTERS.purpose, PROMPTS)
    chosen = torch.randperm(len(target.LETTERS), generator=rng)[: LETTERS.prompts]
    return [torch.stack((letter, torch.tensor(target.ARROW))) for letter in chosen]


def beginnings(shards: Shards, context: int, prompts: int) -> list[Tensor]:
    """The first tokens (L,) of each of a few held-out chunks, at most ``prompts``."""
    chunks = held_out(shards, context, prompts * context)
    most = min(TEXT.beginning, context // 2)
    return [torch.from_numpy(c.tokens[:-1][:most]) for c in islice(chunks, prompts)]


def continuations(
    model: FreeTransformer, prompt: Tensor, pinned: Tensor, sampling: Sampling, rng: Generator
) -> list[Tensor]:
    """Continue the prompt (L,) with fresh z, then with each ``pinned`` noise (6, ≥ T, H), which
    also pins a random prefix: token ids (R, T) each. A model without noise has the first alone.
    """
    new = min(sampling.new, model.config.context - len(prompt) + 1)
    source: LatentSource = FromPrior()
    rows = sampling.draws
    if bits := model.config.noise_width:
        length = len(prompt) + new
        fresh = torch.rand(sampling.draws, length, bits, generator=rng)
        same = pinned[:, :length].repeat_interleave(sampling.draws, dim=0)
        noise = torch.cat((fresh, same))
        source = Noise(noise)
        # pins the prompt's z, too, which would depend on its tokens
        if model.config.latent.shared_codes and model.config.latent.uniform_prior:
            given = torch.arange(len(noise)) >= len(fresh)
            source = Noise(noise, pack_bits(noise < 0.5), given[:, None].expand(-1, length))
        rows += len(same)
    sequences = generate(
        model,
        prompt.expand(rows, -1),
        new,
        generator=rng,
        z=source,
        temperature=sampling.temperature,
    )
    return list(sequences.cpu().split(sampling.draws))


def measure_steering(context: Context) -> Steering:
    model, settings = context.model, context.settings
    prompts = beginnings(context.shards, model.config.context, settings.steering_prompts)
    rng = generator(settings.seed, Purpose.STEERING)
    codes = different_codes(model.config.noise_width, settings.steering_z, rng)
    labels = torch.arange(settings.steering_z).repeat_interleave(settings.steering_draws)
    z = codes[labels % len(codes)]
    apart = torch.stack(
        [
            distances(steered_continuations(model, p.to(context.device), z, settings, rng))
            for p in prompts
        ]
    )
    return steering_figures(apart, z, rng)


def different_codes(bits: int, count: int, rng: Generator) -> Tensor:
    """``count`` different codes of H = ``bits``, or all if there are fewer. Above 16 bits two are
    equal with a probability below count² / 2^17.
    """
    if bits > 16:
        return pack_bits(torch.rand(count, bits, generator=rng) < 0.5)
    return torch.randperm(1 << bits, generator=rng)[:count]


def steered_continuations(
    model: FreeTransformer, prompt: Tensor, z: Tensor, settings: EvaluationConfig, rng: Generator
) -> Tensor:
    """Continue the prompt (P,) with a pinned code z (R,) in each row; returns the tokens (R, N)
    that it can change. The first new token is not among them: it is predicted where the prompt
    ends, whose z is the encoder's, the same in all rows. Where several tokens read one z it is left
    out, too, though the prompt is then read with the pinned z, or after the pinned random prefix.
    """
    new = min(1 + settings.steering_length, model.config.context - len(prompt) + 1)
    source: LatentSource = FromPrior()
    if bits := model.config.noise_width:
        noise = torch.zeros(len(z), len(prompt) + new, bits)
        noise[:, : len(prompt)] = torch.rand(len(prompt), bits, generator=rng)
        given = torch.ones(noise.shape[:2], dtype=torch.bool)
        if model.latent is not None and not model.config.latent.shared_codes:
            given[:, : len(prompt)] = False
        source = Noise(noise, z[:, None].expand_as(given), given)
    sequences = generate(
        model, prompt.expand(len(z), -1), new, generator=rng, z=source, temperature=TEXT.temperature
    )
    return sequences[:, len(prompt) + 1 :].cpu()


def steering_figures(apart: Tensor, z: Tensor, rng: Generator) -> Steering:
    """Figures from distances (P, R, R) between continuations with z (R,), equal for a baseline."""
    if len(z.unique()) == 1:
        return Steering(Estimate.over_documents(mean_distance(apart, z[:, None] == z)))
    result = steering_test(apart, z, rng)
    same = Estimate.over_documents(result.within)
    different = Estimate.over_documents(result.between)
    if not same.mean:  # no ratio: the same z gives the same text
        return Steering(same, different)
    chance = permutation_test(torch.cat((torch.tensor([result.ratio]), result.null)))
    return Steering(
        same=same,
        different=different,
        ratio=Estimate.over_documents(result.between, result.within),
        null_mean=chance.null_mean,
        null_95=chance.null_95,
        p_value=chance.p_value,
    )
