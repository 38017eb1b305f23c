"""Trains and measures tiny models, by the code that users run: the curves that are frozen."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from copy import deepcopy
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from ftmodel.config import LatentDesign
from ftmodel.inference.answers import score_answers
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import FromPrior, Noise
from pipelines.artifacts.checkpoint import checkpoints_in, load_model
from pipelines.artifacts.result_files import flat_numbers
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.init_from import InitFrom
from pipelines.config.schema import DesignChanges, OptimizerName, Precision, Schedule
from pipelines.data.build import make_process
from pipelines.evaluate.stage import evaluate
from pipelines.host.files import corpus_folder, tokens_folder
from pipelines.tokenize.build import tokenize
from pipelines.train.core.segments import find_start, make_manifest
from pipelines.train.core.trainer import Process, SegmentTraining, quiet
from tests import ROOT
from tests.support.corpora import write_corpus
from tests.support.designs import all_pairs
from tests.support.settings import smoke

STEPS = 30
TEXT = "text_free_k1_2"  # the run of smoke that tiny runs are made from
SINGLE_DRAWS = ", single draws"  # ends titles of what is compared on the same processor alone
SURE = ("nll", "ce", "kl", "elbo", "iwae", "prior", "filtering", "exact")
CPU = torch.device("cpu")

Rows = dict[str, dict[str, str]]  # numbers by name, as text; by step or by name
Curves = dict[str, Rows]  # by title


def texts(numbers: dict[Any, float]) -> dict[str, str]:
    """Numbers as text, which differs for any two float32, and for any two float64."""
    exact = {str(name): float(number) for name, number in numbers.items()}
    return {k: f"{x:.9g}" if x == np.float32(x) else repr(x) for k, x in exact.items()}


@contextmanager
def laboratory() -> Iterator[None]:
    """A folder with smoke's data, to be in. Its text is the paragraphs of LICENSE: those of the
    standard library depend on the version of Python.
    """
    data = smoke().data
    paragraphs = (ROOT / "LICENSE").read_bytes().split(b"\n\n")
    quiet()
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder, chdir(folder):
        make_process("target", data["target"], corpus_folder("target"))
        write_corpus(corpus_folder("stdlib"), train=[paragraphs[8:]], validation=[paragraphs[:8]])
        for name in ("target", "stdlib"):
            tokenize(name, data[name], corpus_folder(name), tokens_folder(name), cores=1)
        yield


def run_of_smoke(name: str, title: str = "") -> RunSpec:
    """A run of the experiment with STEPS steps, each a row of its curve."""
    experiment = deepcopy(smoke())
    experiment.runs[title or name] = experiment.runs[name]
    vars(experiment.compute).update(precision=Precision.float32, compile=False)
    spec = RunSpec(experiment, title or name)
    spec.run.tokens = STEPS * spec.batch_tokens
    return spec


def tiny(title: str, design: dict[str, Any] | None = None, **changes: dict[str, Any]) -> RunSpec:
    """A run on text that uses its z from the beginning; of a baseline for ``design`` None."""
    spec = run_of_smoke(TEXT, title)
    experiment = spec.experiment
    architecture = experiment.models[spec.run.model].architecture
    wide = dict(context=16, latent_bits=3, latent_std=0.3, embedding_std=0.3)
    vars(architecture).update(wide | changes.get("architecture", {}))
    vars(spec.optim).update(dict(batch_size=2, lr=1e-3) | changes.get("optim", {}))
    vars(experiment.compute).update(changes.get("compute", {}))
    spec.run.kappa_bits = None if design is None else 0.125
    spec.run.latent = DesignChanges(**(design or {}))
    spec.run.tokens = STEPS * spec.batch_tokens
    vars(spec.run).update(changes.get("run", {}))
    experiment.evaluation.every_tokens = spec.run.tokens
    return spec


def train(spec: RunSpec) -> list[dict[str, float]]:
    """Train a run, and leave its checkpoint where a stage finds it; returns the rows of its curve.

    Nothing is tracked: MLflow takes longer than the training.
    """
    manifest, curve, ended = make_manifest(spec, spec.shards()), [], False
    while not ended:
        start = find_start(spec, manifest)
        process = Process(trainer=dict(accelerator="cpu", devices=1))
        SegmentTraining(spec, process, start, curve.append).train()
        ended = start.segment.last
    spec.checkpoint().parent.mkdir(parents=True, exist_ok=True)
    checkpoints_in(manifest.resume)[-1].replace(spec.checkpoint())
    shutil.rmtree(manifest.resume)
    return curve


def short(row: dict[str, float]) -> dict[str, float]:
    """Loss, gradient norm and, where it was measured, the held-out bound."""
    names = {"loss": "loss_nats", "norm": "gradient_norm", "bound": "held_out_bound_bits"}
    return {name: row[key] for name, key in names.items() if key in row}


def curve_of(spec: RunSpec) -> Rows:
    return {f"{row['step']:.0f}": texts(short(row)) for row in train(spec)}


def words(design: dict[str, Any]) -> str:
    """What of a design is not the paper's."""
    paper = vars(LatentDesign())
    return " ".join(f"{k}={v}" for k, v in design.items() if paper[k] != v) or "paper"


def smoke_runs() -> Curves:
    """The runs of smoke, with all that their curves have, and what is measured of one."""
    found: Curves = {}
    for name in smoke().runs:
        spec = run_of_smoke(name)
        spec.experiment.evaluation.every_tokens = spec.run.tokens // 2
        rows = train(spec)
        for row in rows:
            del row["tokens"], row["tokens_per_second"]
        found[name] = {f"{row.pop('step'):.0f}": texts(row) for row in rows}
    return found | evaluated(run_of_smoke("free_k1"))


def designs(document_mask: bool) -> Curves:
    masked = dict(document_mask=document_mask)
    return {
        words(design): curve_of(tiny(words(design), design, architecture=masked))
        for design in ({}, *all_pairs())
    }


def recipes() -> Curves:
    """The other optimizer, and what else a training may be told."""
    muon = dict(name=OptimizerName.muon, lr=1e-4)  # it rounds to bf16: faster, curves part
    wsd = dict(schedule=Schedule.wsd, latent_lr=2.0, width_scaling=8, skip_spikes=1.5)
    shape = dict(tied=False, qkv_bias=True, qk_norm=True, rope_factor=4.0, rope_old_context=8)
    runs = [
        tiny("baseline"),
        tiny("muon", {}, optim=muon),
        tiny("baseline by muon", optim=muon | wsd, run=dict(extra_blocks=1, budgets=[480])),
        tiny("baseline with a random prefix", run=dict(random_prefix=2)),
        tiny("wsd and accumulation", {}, optim=wsd, compute=dict(accumulate=2)),
        tiny("risen threshold", {}, run=dict(kappa_warmup_steps=9, beta=0.5, seed=1)),
        tiny("shape", {}, architecture=shape),
        tiny("child", {}, run=dict(init_from=InitFrom(run="baseline", copied_lr=1e-3))),
    ]
    runs[-1].experiment.runs["baseline"] = runs[0].run
    return {spec.name: curve_of(spec) for spec in runs}


def evaluated(spec: RunSpec) -> Curves:
    """What the stage evaluate measures of a trained run: bounds, and what hangs on single draws."""
    model, _ = load_model(spec.checkpoint())
    settings = spec.experiment.evaluation
    figures = flat_numbers(evaluate(model, spec.shards(), spec.data, settings, CPU)[0])
    bounds, others = f"{spec.name}: bounds", f"{spec.name}: measured{SINGLE_DRAWS}"
    found: Curves = {bounds: {}, others: {}}
    for path, number in figures.items():
        name, _, quantity = path.rpartition("/")
        sure = name.startswith("bits_per_") and name.endswith(SURE) and quantity == "mean"
        if "per_second" not in path:
            rows = found[bounds if sure else others]
            rows[name or "all"] = rows.get(name or "all", {}) | texts({quantity: number})
    return found


def spoken(spec: RunSpec, frozen: Curves) -> Curves:
    """Continuations of prompts, and their log-probabilities in nats under two draws of z, of which
    the first has drawn them; those of the ``frozen`` continuations, if there are any.
    """
    model, _ = load_model(spec.checkpoint())
    context, width = model.config.context, model.config.noise_width
    prompts = spec.shards().windows("validation", context).batch(torch.arange(3))[:, :6]
    rng = torch.Generator().manual_seed(0)
    noise = torch.rand(2, len(prompts), context, width, generator=rng)
    z = Noise(noise[0]) if width else FromPrior()
    tokens = generate(model, prompts, 8, generator=rng, z=z)[:, 6:]
    title, rows = f"{spec.name}: continuations{SINGLE_DRAWS}", [*map(str, range(len(prompts)))]
    drawn = {i: texts(dict(enumerate(map(float, tokens[int(i)])))) for i in rows}
    if title in frozen:
        tokens = torch.tensor([[*map(int, frozen[title][i].values())] for i in rows])
    draws = noise[:, :, :13] if width else None
    lengths = torch.tensor([8, 8, 5])
    scores = score_answers(model, prompts, None, tokens, lengths, torch.arange(3), draws)
    log_probs = {
        i: texts({f"z{k}": x for k, x in enumerate(column)})
        for i, column in zip(rows, scores.log_probs.T.tolist(), strict=True)
    }
    return {title: drawn, f"{spec.name}: log-probabilities": log_probs}


def finished(frozen: Curves) -> Curves:
    """What trained models know and say; ``frozen`` was written on another kind of processor."""
    found: Curves = {}
    read = dict(inject="residual")  # z is read from the beginning
    every = read | dict(per="every", every=3, prior="recurrent")
    sequence = read | dict(per="sequence", prior="learned")
    for design in (None, read, every, sequence):
        title = "baseline" if design is None else words(design)
        # with a higher rate they part further between processors, as so wide a latent is sensitive
        spec = tiny(title, design, architecture=dict(latent_std=1.0), optim=dict(lr=1e-4))
        settings = spec.experiment.evaluation
        settings.particles, settings.iwae_samples = 4, 4
        settings.tokens = settings.bit_tokens = settings.swap_tokens = 256
        train(spec)
        found |= evaluated(spec) | spoken(spec, frozen)
    return found


# by the names of their files
FAMILIES: dict[str, Callable[[Curves], Curves]] = {
    "smoke": lambda _: smoke_runs(),
    "recipes": lambda _: recipes(),
    "designs_of_rows": lambda _: designs(document_mask=False),
    "designs_of_documents": lambda _: designs(document_mask=True),
    "finished": finished,
}
