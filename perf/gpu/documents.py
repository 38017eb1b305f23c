"""Training steps with attention within documents, by FlexAttention and by the dense mask.

The Free Transformer of the 124 M preset with longer contexts, a row of eight documents a step, bf16
autocast, blocks compiled, both masks in turns.
"""

from dataclasses import replace
from unittest.mock import patch

import torch

from ftmodel.config import ModelConfig
from ftmodel.kernels.attention import flex_works
from perf import steps
from perf.gpu.training_step import QUICK_VOCABULARY, shape
from perf.measure import Figure, Work, figure, in_turns, peak_bytes, ratio
from pipelines.parallel.plan import GIB

CONTEXTS = (4096, 8192)
DOCUMENTS = 8


def measure(turns: int, quick: bool, device: str) -> list[Figure]:
    config, vocabulary = shape("124 M")
    contexts: tuple[int, ...] = CONTEXTS
    if quick:
        config, vocabulary = replace(steps.QUICK, latent_bits=8), QUICK_VOCABULARY
        contexts = tuple(context // 128 for context in CONTEXTS)
    found = []
    for context in contexts:
        longer = replace(config, context=context, document_mask=True)
        found += at_context(longer, vocabulary, device, turns)
    return found


def at_context(config: ModelConfig, vocabulary: int, device: str, turns: int) -> list[Figure]:
    """Measure one context; raises AssertionError if FlexAttention does not work on a GPU."""
    width, context = config.head_channels, config.context
    assert device == "cpu" or flex_works(torch.device(device, 0), width), "see the warning"
    torch.manual_seed(0)
    tokens = torch.randint(vocabulary, (1, context + 1), device=device)
    documents = torch.arange(context, device=device)[None] // (context // DOCUMENTS)
    with torch.device(device):
        made = steps.ours(config, vocabulary, device != "cpu", documents)
    work = steps.training_work(made, tokens, True, steps.STEPS_PER_TURN)

    def dense() -> None:
        with patch("ftmodel.positions.flex_works", lambda *_: False):
            work()

    arms: dict[str, Work] = {"flex": work, "dense": dense}
    seconds = in_turns(arms, turns)
    memory = {name: [peak_bytes(arm, device) / GIB] for name, arm in arms.items()}
    figures = []
    for name in arms:
        each = [value / steps.STEPS_PER_TURN for value in seconds[name]]
        figures.append(figure(f"{context} tokens, {name}: a step", each, "s"))
        figures.append(
            figure(f"{context} tokens, {name}: peak beside weights", memory[name], "GiB")
        )
    for what, of in (("time", seconds), ("memory", memory)):
        name = f"{context} tokens, {what}, flex ÷ dense"
        figures.append(ratio(name, of["flex"], of["dense"], at_most=1.0))
    return figures
