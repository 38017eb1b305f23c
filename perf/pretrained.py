"""SmolLM2-135M in and out, trained on, and asked: beside transformers and lm_eval's own backend.

Training steps are those of experiment retrofit: bf16, blocks compiled, 2 × 512 tokens, AdamW on all
weights; the other loop is the same with transformers' Llama. Import reads a parent's files into a
model, export goes from a checkpoint to a folder or a file, each in a process of its own; peak is
what it holds at most beyond what importing the packages takes, over the bytes of the weights,
files that are mapped included. Requests are PIQA's, of which lm_eval's backend reads 8 at once.
"""

import os
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch

from ftmodel.conversion.llama import decoder_of, llama_config, load_llama, our_config
from ftmodel.model.free_transformer import FreeTransformer
from perf import scores, steps
from perf.harness import END
from perf.measure import Figure, Missing, figure, in_turns, ratio
from perf.scores import MODEL
from pipelines.artifacts import checkpoint, gguf_file, llama_files
from pipelines.artifacts.checkpoint import Manifest
from pipelines.export import hugging_face, llama_cpp
from pipelines.suite.tasks import Skipped, load
from pipelines.tokenize.vocabulary import adopt
from tests.support.gguf_files import shards_of

CONTEXT, BATCH = 512, 2
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
        figures.append(figure(f"{name}: peak ÷ weights", peaks, "ratio", at_most=2.0))

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


def training(model: FreeTransformer, turns: int) -> list[Figure]:
    vocabulary = model.embedding.num_embeddings
    config = replace(model.config, context=CONTEXT)
    torch.manual_seed(0)
    tokens = torch.randint(vocabulary, (BATCH, CONTEXT + 1))
    arms = {
        "control": steps.ours(config, vocabulary, True),
        "free": steps.ours(replace(config, latent_bits=8), vocabulary, True),
        "Llama": steps.llama(config, vocabulary, True),
    }
    seconds = in_turns({name: steps.step(made, tokens, True) for name, made in arms.items()}, turns)
    read = BATCH * CONTEXT
    return [
        *(figure(f"{name}: speed", [read / s for s in seconds[name]], "tokens/s") for name in arms),
        ratio("control ÷ transformers' loop: tokens/s", seconds["Llama"], seconds["control"]),
        ratio("free ÷ transformers' loop: tokens/s", seconds["Llama"], seconds["free"]),
    ]


def piqa(turns: int, count: int) -> list[Figure]:
    (task,) = load("piqa")["tasks"].values()
    task.build_all_requests(limit=count)
    requests = task.instances
    models = {"ours": scores.ours(), "backend": scores.backend()}
    seconds = in_turns(
        {
            name: lambda lm=lm: lm.loglikelihood(requests, disable_tqdm=True)  # type: ignore[misc]
            for name, lm in models.items()
        },
        turns,
    )
    speed = [len(requests) / each for each in seconds["ours"]]
    return [
        figure("PIQA, ours", speed, "requests/s"),
        ratio("PIQA, ours ÷ backend: requests/s", seconds["backend"], seconds["ours"]),
    ]


def measure(turns: int, quick: bool) -> list[Figure]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if not (MODEL / "model.gguf").is_file():
        raise Missing(f"no {MODEL}: `python -m pipelines.pretrained {MODEL.name}` fetches it")
    config, weights, _ = gguf_file.read(MODEL / "model.gguf")
    model = decoder_of(config, weights)
    figures = in_and_out(model, 1 if quick else min(turns, 3))
    figures += training(model, 1 if quick else turns)
    try:
        return figures + piqa(1 if quick else turns, 4 if quick else 48)
    except Skipped:  # no data of PIQA here
        return figures
