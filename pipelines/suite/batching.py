"""Requests of benchmarks: how a text is continued and when it ends; requests grouped by prompt,
packed into batches, padded.

A prompt is encoded once for all its answers, and prompts of similar length are encoded together.
The result of a request depends on none of that: z is drawn from noise that belongs to the prompt
alone.

Shapes: B prompts, P tokens each; R answers, A tokens each; K samples, H latent bits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, cast

import numpy as np
import torch
from lm_eval.models.utils import normalize_gen_kwargs
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pipelines.common.rng_streams import Purpose, generator, philox
from pipelines.host.errors import UserError

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


Ids = tuple[int, ...]  # of tokens
Encoded = tuple[tuple[str, str], list[int], list[int]]  # texts; ids of prompt and answer


@dataclass
class Question:
    """A prompt, and the answers to be scored, each with the indices of its requests."""

    prompt: Ids
    answers: dict[Ids, list[int]] = field(default_factory=dict)

    @property
    def longest(self) -> int:
        return max(map(len, self.answers))


@dataclass(frozen=True)
class Opening:
    """A prompt to be continued; ``repeat`` counts earlier requests for the same."""

    prompt: Ids
    decoding: Decoding
    repeat: int

    @property
    def z(self) -> int:
        """Which of the prompt's z: one for each repeat, or the first for all of them."""
        return self.repeat if self.decoding.fresh_z else 0


def grouped_by_prompt(requests: Sequence[Encoded], context: int) -> tuple[list[Question], int]:
    """Group requests by prompt into questions; also returns how many requests were cut from the
    left to fit a model's ``context``. Raises UserError for an answer without tokens, or with more.
    """
    questions: dict[Ids, Question] = {}
    truncated = 0
    for i, (texts, ids, answer) in enumerate(requests):
        room = context + 1 - len(answer)
        if not answer or room < 1:
            before, text = texts
            raise UserError(
                f"the answer {text[:40]!r} to a prompt that ends in {before[-40:]!r} has "
                f"{len(answer)} tokens; the model can score from 1 to {context}"
            )
        truncated += len(ids) > room
        prompt = tuple(ids[-room:])
        question = questions.setdefault(prompt, Question(prompt))
        question.answers.setdefault(tuple(answer), []).append(i)
    return list(questions.values()), truncated


def batches_of_questions(questions: Sequence[Question], tokens: int) -> Iterator[list[Question]]:
    """Batches, long prompts first, of at most ``tokens`` padded ones, or of one question."""
    batch: list[Question] = []
    n_answers, longest = 0, 0
    for question in sorted(questions, key=lambda q: (len(q.prompt), q.longest), reverse=True):
        n_answers += len(question.answers)
        longest = max(longest, question.longest)
        # the batch with this question, each part padded to its longest row
        if batch and (len(batch) + 1) * len(batch[0].prompt) + n_answers * longest > tokens:
            yield batch
            batch = []
            n_answers, longest = len(question.answers), question.longest
        batch.append(question)
    if batch:
        yield batch


def batches_of_openings(openings: Sequence[Opening], tokens: int) -> Iterator[list[Opening]]:
    """Batches decoded alike, long prompts first, of at most ``tokens``, padded and new included."""
    by_decoding: dict[Decoding, list[Opening]] = {}
    for opening in openings:
        by_decoding.setdefault(opening.decoding, []).append(opening)
    for decoding, group in by_decoding.items():
        group.sort(key=lambda opening: len(opening.prompt), reverse=True)
        while group:
            rows = max(1, tokens // (len(group[0].prompt) + decoding.new))
            yield group[:rows]
            del group[:rows]


def padded(rows: Sequence[Ids], left: bool = False) -> tuple[Tensor, Tensor]:
    """Ids (rows, longest), padded with 0, and the length of each row, (rows,)."""
    side = "left" if left else "right"
    tensors = [torch.tensor(row) for row in rows]
    ids = pad_sequence(tensors, batch_first=True, padding_side=side)
    return ids, torch.tensor([len(row) for row in rows])


def left_padded(prompts: Sequence[Ids]) -> tuple[Tensor, Tensor | None]:
    """Prompts (B, P), padded on the left, and their padding (B,), or None if it is 0."""
    ids, lengths = padded(prompts, left=True)
    padding = ids.shape[1] - lengths
    return ids, padding if padding.any() else None


def digest(ids: Ids) -> int:
    """63 bits that tell prompts apart."""
    return int.from_bytes(sha256(np.array(ids, np.int64).tobytes()).digest()[:8], "little") >> 1


def latent_noise(
    prompts: Sequence[Ids],
    new: int,
    samples: int,
    bits: int,
    seed: int,
    purpose: Purpose,
    repeats: Sequence[int] | None = None,
) -> Tensor:
    """Noise (K, B, P + new, H), uniform on [0, 1), for left-padded prompts and what comes after.

    A prompt and what follows it have a stream each, by the prompt's tokens and the number of the
    repeat, drawn position by position. So noise depends neither on other prompts, nor on padding,
    nor on how much follows.
    """
    longest = max(map(len, prompts))
    noise = np.zeros((samples, len(prompts), longest + new, bits), np.float32)
    for row, prompt in enumerate(prompts):
        key = digest(prompt)
        repeat = 0 if repeats is None else repeats[row]
        # streams of a repeat: an even one for the prompt, and an odd one for what follows
        of_prompt, of_rest = 2 * repeat, 2 * repeat + 1
        span_of_prompt = slice(longest - len(prompt), longest)
        for number, span in ((of_prompt, span_of_prompt), (of_rest, slice(longest, None))):
            target = noise[:, row, span]  # (K, n, H)
            stream = philox(seed, purpose, key, number)
            drawn = stream.random((target.shape[1], samples, bits), np.float32)
            target[:] = drawn.transpose(1, 0, 2)
    return torch.from_numpy(noise)


def token_generator(opening: Opening, seed: int) -> torch.Generator:
    """The stream from which a continuation's tokens are drawn, whatever it is batched with."""
    key = digest((*opening.prompt, opening.repeat))
    return generator(seed, Purpose.GENERATION, key & 0xFFFFFFFF)
