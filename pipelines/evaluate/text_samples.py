"""Continuations of held-out text, to be read."""

from itertools import islice

import torch

from ftmodel.inference.generate import generate
from ftmodel.model.transformer import FreeTransformer
from pipelines.artifacts.packing import held_out
from pipelines.artifacts.results import Sample
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import TextData
from pipelines.config.schema import Evaluation as Settings
from pipelines.evaluate.measurement import Context

PROMPT, NEW, SAMPLES = 32, 96, 3  # tokens of prompt, of continuation; how many
TEMPERATURE = 0.8


def applies(context: Context) -> bool:
    return isinstance(context.data, TextData)


def measure(context: Context) -> None:
    context.details.samples = text_samples(
        context.model, context.shards, context.settings, context.device
    )


def text_samples(
    model: FreeTransformer, shards: Shards, settings: Settings, device: torch.device
) -> list[Sample]:
    """Continuations of the first tokens of a few held-out chunks."""
    context = model.config.context
    rng = generator(settings.seed, Purpose.TEXT)
    decode = shards.tokenizer().decode
    samples = []
    for chunk in islice(held_out(shards, context, SAMPLES * context), SAMPLES):
        prompt = torch.from_numpy(chunk.tokens[:-1][: min(PROMPT, context // 2)])
        new = min(NEW, context - len(prompt))
        ids = generate(model, prompt[None].to(device), new, generator=rng, temperature=TEMPERATURE)[
            0
        ].tolist()
        samples.append(Sample(decode(ids[: len(prompt)]), decode(ids[len(prompt) :])))
    return samples
