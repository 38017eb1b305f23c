"""Generates samples to look at, on the target task and on text: a few prompts, the same for every
arm, are continued with numbered pinned z and with fresh z.

Shapes: L prompt tokens, N new tokens, T = L + N, R draws with each z, H latent bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Generator, Tensor

from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import FromPrior, LatentSource, Noise
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.synthetic import target_task
from pipelines.artifacts.packing import held_out
from pipelines.artifacts.results import Generations
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import TextData
from pipelines.evaluate.measurement import Context

PINNED = 6  # different z, by number
# indices of the streams of GROUPS and TEXT; target_generations.py has 0
PINNED_Z, FRESH_Z_AND_TOKENS, PROMPTS = 1, 2, 3


@dataclass(frozen=True)
class Sampling:
    purpose: Purpose
    prompts: int
    beginning: int  # tokens of a prompt, at most
    new: int  # tokens, at most
    draws: int  # with each pinned z, and as many with fresh z
    temperature: float = 1.0


LETTERS = Sampling(Purpose.GROUPS, 4, target_task.PROMPT, target_task.LENGTH, draws=6)
TEXT = Sampling(Purpose.TEXT, 3, 32, 96, draws=4, temperature=0.8)


def applies(context: Context) -> bool:
    return context.data.source == "target" or isinstance(context.data, TextData)


def measure(context: Context) -> None:
    model, seed = context.model, context.settings.seed
    if context.data.source == "target":
        sampling, prompts = LETTERS, letters(seed)
        decode: Callable[[Tensor], str] = target_task.decode
    else:
        sampling, prompts = TEXT, beginnings(context.shards, model.config.context, TEXT.prompts)
        decode = text_decoder(context.shards)
    bits, length = model.config.noise_width, sampling.beginning + sampling.new
    pinned = torch.rand(PINNED, length, bits, generator=generator(seed, sampling.purpose, PINNED_Z))
    rng = generator(seed, sampling.purpose, FRESH_Z_AND_TOKENS)
    for prompt in prompts:
        groups = [
            [decode(ids[len(prompt) :]) for ids in group]
            for group in continuations(model, prompt.to(context.device), pinned, sampling, rng)
        ]
        context.details.generations.append(Generations(decode(prompt), groups[0], groups[1:]))


def text_decoder(shards: Shards) -> Callable[[Tensor], str]:
    tokenizer = shards.tokenizer()
    return lambda ids: tokenizer.decode(ids.tolist())


def letters(seed: int) -> list[Tensor]:
    """Prompts (2,) of the target task, each with another letter."""
    rng = generator(seed, LETTERS.purpose, PROMPTS)
    chosen = torch.randperm(len(target_task.LETTERS), generator=rng)[: LETTERS.prompts]
    return [torch.stack((letter, torch.tensor(target_task.ARROW))) for letter in chosen]


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
        # pins the prompt's z, too, which would depend on its tokens
        if model.config.latent.shared_codes and model.config.latent.uniform_prior:
            same = torch.where(same < 0.5, -1.0, 1.0)
        source = Noise(torch.cat((fresh, same)))
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
