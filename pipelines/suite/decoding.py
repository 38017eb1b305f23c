"""How the texts of benchmarks are continued: what a task asks for, and when a text ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from lm_eval.models.utils import normalize_gen_kwargs
from torch import Tensor

from pipelines.common.errors import UserError

NEW_TOKENS = 256  # of a continuation, where the task does not say: the harness's own number
NEUTRAL = {"top_k": 0, "top_p": 1, "num_beams": 1, "repetition_penalty": 1}  # without effect


@dataclass(frozen=True)
class Decoding:
    """How a text is continued."""

    until: tuple[str, ...]  # strings that end it
    temperature: float
    new: int  # tokens at most
    fresh_z: bool  # whether z is drawn anew for each repeat of a prompt


def read_settings(settings: dict[str, Any], context: int) -> Decoding:
    """The decoding that a task's settings ask for.

    If a task allows more new tokens than the model's context, they have half of it. Repeats of a
    prompt have their own z if tokens are drawn, unless ``fresh_z``, our own setting, says
    otherwise. Raises UserError for a way of decoding that is not supported.
    """
    kwargs = dict(normalize_gen_kwargs(settings, NEW_TOKENS))
    until = [text for text in cast(list[str | None], kwargs.pop("until")) if text]
    new = cast(int, kwargs.pop("max_gen_toks"))
    temperature = cast(float, kwargs.pop("temperature", 1.0))
    if not kwargs.pop("do_sample"):
        temperature = 0.0
    fresh_z = cast(bool, kwargs.pop("fresh_z", temperature > 0))
    if not temperature:
        kwargs = {k: v for k, v in kwargs.items() if k not in ("top_k", "top_p")}
    refused = {k: v for k, v in kwargs.items() if v not in (None, NEUTRAL.get(k))}
    if temperature < 0:
        refused["temperature"] = temperature
    for name, value in refused.items():
        raise UserError(
            f"generation_kwargs: {name}: {value} is not supported; tokens are either the "
            "likeliest or drawn from all at a temperature"
        )
    new = new if new < context else context // 2
    return Decoding(tuple(until), temperature, new, fresh_z)


class Ending:
    """Says which of B texts have ended. Called after each token, with all tokens so far (B, n);
    ``texts`` gives their bytes.
    """

    def __init__(self, rows: int, until: Sequence[str], end: int, bytes_of: list[bytes]) -> None:
        self.stops = [text.encode(errors="surrogatepass") for text in until if text]
        self.longest = max(map(len, [b"", *self.stops]))  # a stop begins no further back
        self.texts = [bytearray() for _ in range(rows)]
        self.ended = torch.zeros(rows, dtype=torch.bool)
        self.end, self.bytes_of = end, bytes_of

    def __call__(self, tokens: Tensor) -> Tensor:
        """Which texts have ended, (B,), on the CPU."""
        last = tokens[:, -1].tolist()
        for row in (~self.ended).nonzero().flatten().tolist():
            text, start = self.texts[row], len(self.texts[row]) - self.longest
            text += self.bytes_of[last[row]]
            if last[row] == self.end or any(
                text.find(stop, max(0, start)) >= 0 for stop in self.stops
            ):
                self.ended[row] = True
        return self.ended
