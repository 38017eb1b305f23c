"""Measures how fast this machine trains: ten seconds of training steps on random tokens.

As many processes do it at once as stages will run side by side, because they share the machine's
memory and caches. They count seconds of their cores, so that what else is running matters little.
What was measured is noted in logs/speed.json and read from there next time.
"""

import platform
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from ftmodel.config import ModelConfig
from ftmodel.layers import use_kernels
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss
from pipelines.config.schema import Optim
from pipelines.host.console import say
from pipelines.host.files import write_file
from pipelines.host.machine import allowed_cores
from pipelines.train.core.optimizer import make_optimizer

NOTES = Path("logs/speed.json")
TRIAL_SECONDS = 10.0  # of all shapes together
STEP_SECONDS = 0.5  # a step of a large model has fewer rows than its batch
LIBRARIES = ("dvc.cli", "pipelines.train.stage", "pipelines.evaluate.stage")  # that a stage loads
START = "start"  # the key of the seconds until a process has loaded them


@dataclass(frozen=True)
class Shape:
    """What decides how fast a run trains on a given machine."""

    config: ModelConfig
    vocabulary: int
    optim: Optim
    bf16: bool


def speeds(shapes: Sequence[Shape], processes: int, threads: int) -> tuple[float, list[float]]:
    """The seconds until a stage's libraries are loaded, and the tokens per second that each of
    ``processes`` with ``threads`` trains on, side by side, for each shape.
    """
    kinds: list[Shape | str] = [START, *shapes]
    keys = [note_key(kind, processes, threads) for kind in kinds]
    notes = read_notes()
    if missing := [key for key in keys if key not in notes]:
        say(f"measuring this machine for {TRIAL_SECONDS:g} s; {NOTES} keeps what is found")
        unknown = [shape for shape, key in zip(shapes, keys[1:], strict=True) if key in missing]
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            jobs = [pool.submit(trial, unknown, threads) for _ in range(processes)]
            found = [fmean(each) for each in zip(*(job.result() for job in jobs), strict=True)]
        measured = [keys[0], *(key for key in keys[1:] if key in missing)]
        notes |= dict(zip(measured, found, strict=True))
        NOTES.parent.mkdir(exist_ok=True)
        write_file(NOTES, TypeAdapter(dict[str, float]).dump_json(notes, indent=1))
    start, *found = (notes[key] for key in keys)
    return start, found


def note_key(shape: Shape | str, processes: int, threads: int) -> str:
    """A hash of the machine, of how it is shared, and of what it trains."""
    machine = platform.node(), platform.processor(), allowed_cores(), torch.__version__
    return sha256(repr((machine, processes, threads, shape)).encode()).hexdigest()[:16]


def read_notes() -> dict[str, float]:
    """What was measured before; nothing if the file is missing or damaged."""
    try:
        return TypeAdapter(dict[str, float]).validate_json(NOTES.read_bytes())
    except (OSError, ValidationError):
        return {}


def trial(shapes: Sequence[Shape], threads: int) -> list[float]:
    """Seconds of this process until the libraries are loaded, then tokens per second by shape."""
    with redirect_stdout(sys.stderr):
        for name in LIBRARIES:
            import_module(name)
    start = process_time()
    torch.set_num_threads(threads)
    seconds = TRIAL_SECONDS / max(1, len(shapes))
    return [start, *(speed(shape, threads, seconds) for shape in shapes)]


def speed(shape: Shape, threads: int, seconds: float) -> float:
    """Tokens per second of training steps that take about ``seconds`` in all, of each thread."""
    config = shape.config
    model = use_kernels(FreeTransformer(config, shape.vocabulary))
    optimizer: Any = make_optimizer(model, shape.optim)

    def step(rows: int) -> float:
        begun = process_time()
        tokens = torch.randint(shape.vocabulary, (rows, config.context + 1))
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        noise = torch.rand(*inputs.shape, config.noise_width) if config.noise_width else None
        documents = torch.zeros_like(inputs) if config.document_mask else None
        with torch.autocast("cpu", torch.bfloat16, enabled=shape.bf16):
            loss = training_loss(model, inputs, targets, noise, 0.0, documents).total
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), shape.optim.clip)
        optimizer.step()
        optimizer.zero_grad()
        return (process_time() - begun) / threads

    step(1)  # the first one also prepares kernels and the optimizer's state
    rows = min(shape.optim.batch_size, max(1, int(STEP_SECONDS / step(1))))
    spent = [step(rows)]
    while sum(spent) < seconds:
        spent.append(step(rows))
    return rows * config.context * len(spent) / sum(spent)
