"""Import and export of SmolLM2-135M: time and memory.

Import reads a parent's files into a model, export goes from a checkpoint to a folder or a file,
each in a process of its own; peak is what it holds at most beyond what importing the packages
takes, over the bytes of the weights, files that are mapped included.
"""

import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch

from ftmodel.conversion.llama import decoder_of, llama_config, load_llama, our_config
from ftmodel.model.free_transformer import FreeTransformer
from perf.measure import Figure, Missing, figure
from perf.scores import END, MODEL
from pipelines.artifacts import checkpoint, gguf_file, llama_files
from pipelines.artifacts.checkpoint import Manifest
from pipelines.export import hugging_face, llama_cpp
from pipelines.tokenize.vocabulary import adopt
from tests.support.gguf_files import shards_of

FORMATS = ("GGUF", "safetensors")


def status(key: str) -> int:
    """Bytes, of /proc/self/status."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    match = re.search(rf"{key}:\s+(\d+) kB", text)
    assert match, key
    return 1024 * int(match[1])


def cost(work: Callable[..., None], *arguments: Any) -> tuple[float, int]:
    """Seconds of ``work``, and the most bytes that this process then held beyond those before."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak is what there is
    before, start = status("VmRSS"), perf_counter()
    work(*arguments)
    return perf_counter() - start, status("VmHWM") - before


def read(path: Path) -> None:
    llama = llama_files.read_llama(path)
    load_llama(FreeTransformer(our_config(llama.config), llama.config["vocab_size"]), llama.weights)


def export(path: Path, to: str, target: Path) -> None:
    model, manifest = checkpoint.load_model(path)
    shards = shards_of(adopt(MODEL / "tokenizer.json", END))
    if to == "safetensors":
        target.mkdir()
        hugging_face.write(
            target, hugging_face.configuration(model, shards), model, shards, "no card"
        )
        return
    config = llama_config(model.config, shards.metadata.vocab_size)
    about = llama_cpp.provenance(manifest, 0)
    llama_cpp.write(target, model, config, llama_cpp.vocabulary(shards), about)


def write_checkpoint(model: FreeTransformer, path: Path) -> None:
    """As a run leaves it: with two moments of each weight."""
    run = {"seed": 0, "data": "none"}
    size = model.embedding.num_embeddings
    manifest = Manifest("smollm2", "parent", run, asdict(model.config), size, "none", "none")
    weights = {f"{checkpoint.PREFIX}{name}": w for name, w in model.state_dict().items()}
    moments = [{name: torch.zeros_like(w) for name, w in weights.items()} for _ in range(2)]
    content = {checkpoint.ENTRY: asdict(manifest), "state_dict": weights, "moments": moments}
    checkpoint.write(content, path)


def in_and_out(model: FreeTransformer, turns: int) -> list[Figure]:
    weights = 4 * sum(p.numel() for p in model.parameters())
    figures = []

    def measured(name: str, work: Callable[..., None], *arguments: Any) -> None:
        costs = []
        for turn in range(turns):
            given = [a / str(turn) if a is folder else a for a in arguments]
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                costs.append(pool.submit(cost, work, *given).result())
        figures.append(figure(f"{name}: time", [seconds for seconds, _ in costs], "s"))
        peaks = [held / weights for _, held in costs]
        figures.append(figure(f"{name}: peak ÷ weights", peaks, at_most=2.0))

    with TemporaryDirectory() as temporary:
        path = Path(temporary) / "last.ckpt"
        write_checkpoint(model, path)
        for to in FORMATS:
            folder = Path(temporary) / to
            folder.mkdir()
            measured(f"export, {to}", export, path, to, folder)
        measured("import, safetensors", read, Path(temporary) / "safetensors" / "0")
        measured("import, GGUF of 4 bits", read, MODEL.absolute() / "model.gguf")
    return figures


def measure(turns: int, quick: bool) -> list[Figure]:
    if not (MODEL / "model.gguf").is_file():
        raise Missing(f"no {MODEL}: `python -m pipelines.pretrained {MODEL.name}` fetches it")
    config, weights, _ = gguf_file.read(MODEL / "model.gguf")
    return in_and_out(decoder_of(config, weights), 1 if quick else min(turns, 3))
