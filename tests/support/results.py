"""Results written by hand: small, but of every shape that evaluation leaves."""

import json
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import asdict
from functools import cache
from math import isnan, log, nan, sqrt
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from omegaconf import OmegaConf

from pipelines.artifacts.checkpoint import Manifest, settings_hash
from pipelines.artifacts.curve import CurveRow, write_table
from pipelines.artifacts.result_files import write_json
from pipelines.artifacts.run_results import read_runs
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.suite_results import TaskResult
from pipelines.artifacts.tokens.shards import Metadata, Overlap, Split, write_metadata
from pipelines.compare.arms import Arm, group_by_seed
from pipelines.config.data import KINDS, sources
from pipelines.config.derived import trainings
from pipelines.config.load import load_experiment
from pipelines.config.schema import EvaluationConfig, Experiment
from pipelines.report import page
from pipelines.report.analysis import Analysis

CE = 0.1111  # of every Free Transformer: far below any bound
# standard errors of figures that no verdict rests on, in those of the bound: none has another's
ERRORS = {"ce": 1.1, "kl": 1.2, "elbo": 1.3, "iwae": 1.4, "prior": 1.5, "waste": 1.6}
GROUP = ["A>" + "_" * i + "A" * 8 + "!" + "_" * (55 - i) for i in range(8)]
ARCHITECTURE = {
    "n_layers": 2, "d_model": 8, "n_heads": 2, "n_kv_heads": 1, "ffn_width": 16, "context": 65
}  # fmt: skip
SPLITS = {name: Split(34_567, 1200, 1, []) for name in ("train", "validation")}
TOKENS = Metadata(300, "uint16", None, 0, "hash", SPLITS)  # of the text
BITS = {"small": 3, "large": 5}  # latent bits of models; of any other 3


def params(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    sizes = {spec["model"]: 3 for spec in runs.values()} | BITS
    optim = {"batch_size": 1, "lr": 0.001, "warmup_steps": 10}
    models = {
        name: {"architecture": ARCHITECTURE | {"latent_bits": bits}, "optim": optim}
        for name, bits in sizes.items()
    }
    own = {"source": "files", "root": "texts", "pattern": "*.txt"}
    text = {"source": "text", "parts": {"own": own}, "validation_share": 0.1, "vocab_size": 300}
    target = {"source": "target", "train_sequences": 9, "validation_sequences": 9}
    data = {"target": target, "text": text}
    suite = {"name": "none"}
    return complete({"name": "tiny", "data": data, "models": models, "runs": runs, "suite": suite})


def complete(plain: dict[str, Any]) -> dict[str, Any]:
    """An experiment with every setting written down, as Hydra composes it."""
    node: Any = OmegaConf.merge(OmegaConf.structured(Experiment), plain)
    for name, entry in plain["data"].items():
        node.data[name] = OmegaConf.merge(sources()[entry["source"]], entry)
        for part_name, part in entry.get("parts", {}).items():
            node.data[name].parts[part_name] = OmegaConf.merge(KINDS[part["source"]], part)
    node.trainings = OmegaConf.create(trainings(node.runs, node.name))
    return OmegaConf.to_container(node, enum_to_str=True)  # type: ignore[return-value]


@cache
def params_text(runs: str) -> str:
    return yaml.safe_dump(params(json.loads(runs)), sort_keys=False)


def run(data: str = "target", kappa: float | None = None, **changes: Any) -> dict[str, Any]:
    plain = {"data": data, "model": "small", "kappa_bits": kappa, "tokens": 6500, "seed": 0}
    return plain | changes


PAIR = {"base": run(), "free": run(kappa=1.0)}
CONTROLLED = {"base": run(), "plus": run(extra_blocks=1), "free": run(kappa=1.0)}


def figures(
    bound: float,
    se: float,
    free: bool,
    ce: float = CE,
    prior: float = 3.0,
    half_variance: float = 0,
    converged: bool | None = None,
) -> dict[str, dict[str, float]]:
    """What evaluation measures, in any unit, with figures that are told apart when printed; the
    prior-sample bound is by ``prior`` above the filtering bound.
    """
    if not free:
        return {"nll": {"mean": bound, "se": se}}
    means = {
        "ce": ce, "kl": 0.2222, "elbo": bound + 0.3, "iwae": bound + 0.2, "prior": bound + prior,
        "filtering": bound, "use": bound - ce, "waste": ce + 0.2222 - bound,
    }  # fmt: skip
    entries = {k: {"mean": mean, "se": se * ERRORS.get(k, 1)} for k, mean in means.items()}
    entries["filtering"]["monte_carlo"] = se / 20
    entries["filtering"]["half_variance"] = half_variance or se / 20
    if converged is not None:
        entries["filtering"]["converged"] = converged
    return entries


def document_bits(bound: float, se: float, free: bool) -> list[float]:
    """Bits of 8 documents of 65 tokens: they vary widely, the same for all arms, and for a Free
    Transformer by an amount of their own whose standard error per token is ``se``.
    """
    if isnan(se):
        return [65 * bound]  # a single document has no standard error
    own = se * sqrt(7) if free else 0.0
    return [65 * (bound + wide + own * sign) for wide in (-2, -1, 1, 2) for sign in (-1, 1)]


def measured(
    spec: dict[str, Any], bound: float, se: float, **others: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    free, bits = spec["kappa_bits"] is not None, BITS.get(spec["model"], 3)
    speed = 4321.5 + 20 * spec["seed"]
    metrics: dict[str, Any] = {"documents": 8, "tokens": 520, "tokens_per_second": speed}
    metrics["bits_per_token"] = figures(bound, se, free, **others)
    details: dict[str, Any] = {
        "kl_per_bit": [0.2222 / bits] * bits if free else [],
        "bound_bits": document_bits(bound, se, free),
    }
    documents = len(details["bound_bits"])
    details["document_tokens"] = [65] * documents
    if spec["data"] == "target":
        metrics["bits_per_token"]["exact"] = {"mean": 0.4444, "se": 0.01}
        metrics["gap_nats_per_token"] = {"mean": 0.1 + 0.02 * spec["seed"], "se": 0.001}
        kinds = ("fresh", "pinned") if free else ("fresh",)
        scores = {"valid": 1.0, "spread": 2.5, "noise": nan, "groups": 2, "group_size": 8}
        metrics |= {kind: scores for kind in kinds}
        details["groups"] = {kind: [GROUP, GROUP[::-1]] for kind in kinds}
        details["generations"] = [
            {"prompt": f"{letter}>", "fresh": [text[2:] for text in GROUP[:2]]} for letter in "AB"
        ]
    else:
        metrics["bits_per_byte"] = figures(bound / 3, se / 3, free, **others)
        details["document_bytes"] = [195] * documents
        written = "\n\x04 end ``` of</script><img src=x onerror=alert(1)>"
        details["generations"] = [
            {"prompt": prompt, "fresh": [written + i for i in "ab"]}
            for prompt in ("if a <b> &", "for")
        ]
    if free:
        for entry in details["generations"]:
            entry["pinned"] = [[f"{text}{z}" for text in entry["fresh"]] for z in range(3)]
    parameters = 1000 + 2 * free + spec.get("extra_blocks", 0)
    metrics |= {"trained_tokens": spec["tokens"], "parameters": parameters}
    return metrics | ({"collapsed": 0} if free else {}), details


def made_with(folder: Path, name: str) -> dict[str, Any]:
    """What details.json says of the model and the settings behind it: those of params.yaml."""
    spec = RunSpec(loaded(folder), name)
    parts = {"settings": settings_hash(spec, 11)}
    made = asdict(spec.run), asdict(spec.config)
    manifest = Manifest("tiny", name, *made, 11, TOKENS.hash, "hash", parts=parts)
    return {"manifest": asdict(manifest), "settings": asdict(spec.experiment.evaluation)}


def write_results(
    folder: Path, name: str, spec: dict[str, Any], bound: float, se: float, **others: float
) -> None:
    folder = folder / "results/tiny" / name
    folder.mkdir(parents=True)
    metrics, details = measured(spec, bound, se, **others)
    (folder / "evaluation.json").write_text(json.dumps(metrics))
    (folder / "metrics.json").write_text(json.dumps({"bound_bits_per_token": bound}))
    (folder / "details.json").write_text(json.dumps(details))
    latent = {"kl_bits": 0.25, "hinge_nats": 0.0} if spec["kappa_bits"] is not None else {}
    rows = [CurveRow(i, 65 * i, 1.0, log(2) / i, 0.001, 32.5 * i, **latent) for i in (1, 2, 4)]
    write_table(folder / "curve.csv", [row.figures() for row in rows])


def write_experiment(
    folder: Path,
    runs: dict[str, dict[str, Any]],
    bounds: dict[str, float],
    se: float = 0.01,
    others: dict[str, dict[str, float]] | None = None,
) -> Path:
    """Results of ``runs`` with these bounds, bits per token, else 0.5; ``others``: ce and prior."""
    write_tokens(folder / "data/tokens/text")
    (folder / "params.yaml").write_text(params_text(json.dumps(runs)))
    for name, spec in runs.items():
        write_results(folder, name, spec, bounds.get(name, 0.5), se, **(others or {}).get(name, {}))
        change(folder, name, "details.json", **made_with(folder, name))
    return folder


def write_tokens(folder: Path) -> None:
    """What the report reads of a text's tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    write_metadata(folder, TOKENS)
    write_json(folder / "overlap.json", Overlap(13, 40, 1, 2000, 50, True))


def task(value: float, se: float | None = 0.02, **changes: Any) -> dict[str, Any]:
    """An entry of a suite.json."""
    plain = TaskResult(value, se, "acc_char", "ft_facts", documents=100, version="1.0", seconds=1.2)
    return asdict(plain) | changes


def write_suite(
    folder: Path,
    name: str,
    tasks: dict[str, dict[str, Any]],
    scores: dict[str, list[float]] | None = None,
    **changes: Any,
) -> None:
    """What the stage `suite` leaves of a run whose other results are there."""
    set_suite_run(folder, name, True)
    settings = yaml.safe_load((folder / "params.yaml").read_text())["suite"]
    folder = folder / "results/tiny" / name
    suite = {
        "suite": "mini", "harness": "lm_eval 0.4.13", "scoring": "marginal", "samples": 8,
        "limit": None, "seed": 0, "tasks": tasks, "skipped": {}, "settings": settings,
        "manifest": json.loads((folder / "details.json").read_text())["manifest"],
    }  # fmt: skip
    (folder / "suite.json").write_text(json.dumps(suite | changes))
    (folder / "suite_scores.json").write_text(json.dumps(scores or {}))


def set_suite_run(folder: Path, name: str, scored: bool) -> None:
    """Say in params.yaml whether the suite scores a run."""
    content = yaml.safe_load((folder / "params.yaml").read_text())
    others = {key: data for key, data in content.get("suite_runs", {}).items() if key != name}
    mine = {name: content["runs"][name]["data"]} if scored else {}
    text = yaml.safe_dump(content | {"suite_runs": others | mine}, sort_keys=False)
    (folder / "params.yaml").write_text(text)


def change(folder: Path, name: str, file: str, **changes: Any) -> None:
    """Put other entries into a file of a run's results."""
    path = folder / "results/tiny" / name / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def write_latent(
    folder: Path, name: str, start: float = 4.0, valid: float = 0.75, prior: float = 1.0
) -> None:
    """What evaluation adds for a Free Transformer on the target task; ``valid`` of posterior
    reconstructions, ``prior`` of generations. Of z, the start is told evenly by 4 positions.
    """
    aggregate = {"at_least": 1.5, "at_most": 2.5}
    reconstruction = {"valid": valid, "distance": 0.25, "noise": None}
    latent = {"start_bits": start, "start_entropy": 5.8329, "aggregate_bits": aggregate,
              "reconstruction": reconstruction}  # fmt: skip
    scores = {"valid": prior, "spread": 2.5, "noise": nan, "groups": 2, "group_size": 8}
    change(folder, name, "evaluation.json", latent=latent, fresh=scores,
           elbo_gap_nats_per_token={"mean": 0.2, "se": 0.001})  # fmt: skip
    around = {"offset": [-1, 0, 1], "kl_bits": [0.1, 0.4, 9.0], "n": [40, 50, 3]}
    known = [start * share for share in (0.25, 0.5, 0.75, 1)]
    details = {"start_bits": known, "next_bits": [0.0, 0.1, None, 0.3], "from_start": around}
    change(folder, name, "details.json", latent=details)


@contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Work there. A suite may have scored some runs alone, where Hydra lists all on text."""
    with chdir(folder), patch("pipelines.config.checks.check_derived"):
        yield


def make_report(folder: Path, so_far: bool = False) -> Path:
    with in_folder(folder):
        page.main(so_far)
    return folder / "report/tiny"


LOADED: dict[str, Experiment] = {}  # by params.yaml


def loaded(folder: Path) -> Experiment:
    text = (folder / "params.yaml").read_text()
    if text not in LOADED:
        with in_folder(folder):
            LOADED[text] = load_experiment()
    return LOADED[text]


def analysis_of(folder: Path) -> Analysis:
    experiment = loaded(folder)
    with in_folder(folder):
        arms = group_by_seed(read_runs(experiment))
    return Analysis(arms, EvaluationConfig(), experiment.expectation)


def arms_of(folder: Path) -> list[Arm]:
    return analysis_of(folder).arms


def with_seeds(arms: dict[str, dict[str, Any]], seeds: int = 2) -> dict[str, dict[str, Any]]:
    return {
        f"{arm}_s{seed}": spec | {"seed": seed}
        for arm, spec in arms.items()
        for seed in range(seeds)
    }


def seeded(
    folder: Path, arms: dict[str, dict[str, Any]], bounds: dict[str, list[float]], **others: Any
) -> Analysis:
    """Arms with a bound for each seed; their documents differ by all but the same, ± 0.0001."""
    seeds = len(next(iter(bounds.values())))
    by_run = {f"{arm}_s{i}": bound for arm, each in bounds.items() for i, bound in enumerate(each)}
    write_experiment(folder, with_seeds(arms, seeds), by_run, se=0.0001, **others)
    return analysis_of(folder)
