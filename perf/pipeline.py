"""What the pipeline costs beside its work: imports, the start of each stage, `dvc repro` in vain.

import      every module of ftmodel in a new interpreter, less torch alone in another
stage       from the start of its process to its first useful work, on data and models of a smoke
            experiment: the first document, the first merge of the tokenizer, the first training
            step, the first token that a trained model reads, the first result; compose and
            inputs to their end
dvc repro   of the experiment quickstart, where nothing is to be done. Its stages' outputs are
            made up and committed: DVC compares sizes and times of files, whatever is in them
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from perf.measure import Figure, Work, figure, in_turns
from pipelines.common.atomic_files import ROOT
from tests.support.project_copy import Project

# of each stage its arguments and its first useful work, in place of which its process ends
STAGES = {
    "data": (["stdlib"], "pipelines.artifacts.corpus:PartWriter.add"),
    "tokenize": (["stdlib"], "pipelines.tokenize.vocabulary:train_bpe"),
    "train": (["text_free_k1_2"], "pipelines.train.core.module:TrainingModule.training_step"),
    "evaluate": (["text_free_k1_2"], "torch.nn:Embedding.forward"),
    "suite": (["text_free_k1_2"], "torch.nn:Embedding.forward"),
    "report": ([], "pipelines.report.page:read_runs"),
}
REACHED = 42
UP_TO = f"""
import os, sys
from functools import reduce
from importlib import import_module

from pipelines.cli import COMMANDS

stage, work = sys.argv[1:3]
main = import_module(COMMANDS[stage][0]).main
module, path = work.split(":")
*owners, name = path.split(".")
setattr(reduce(getattr, owners, import_module(module)), name, lambda *_, **__: os._exit({REACHED}))
main(*sys.argv[3:])
"""
MADE_UP = """
from pathlib import Path
from dvc.repo import Repo

for stage in Repo(".").index.stages:
    for out in stage.outs:
        path = Path(out.fs_path)
        if path.exists():
            continue
        files = [path] if path.suffix else [path / f"{i}.bin" for i in range(4)]
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(str(file).encode() * 100)
"""


def imports(turns: int) -> Figure:
    files = (ROOT / "ftmodel").rglob("[a-z]*.py")
    modules = sorted(".".join(f.relative_to(ROOT / "ftmodel").with_suffix("").parts) for f in files)
    code = (
        "import torch; from time import perf_counter; start = perf_counter(); import "
        + ", ".join(f"ftmodel.{name}" for name in modules)
        + "; print(perf_counter() - start)"
    )
    seconds = [
        float(
            subprocess.check_output(
                [sys.executable, "-c", code], cwd=ROOT, text=True, encoding="utf-8"
            )
        )
        for _ in range(turns)
    ]
    return figure("import of ftmodel beyond torch's", seconds, "s", at_most=2.0)


def up_to(project: Project, stage: str) -> Work:
    arguments, work = STAGES[stage]

    def start() -> None:
        done = project.run("python", "-c", UP_TO, stage, work, *arguments)
        assert done.returncode == REACHED, done.stdout + done.stderr

    return start


def stages(turns: int, names: list[str], folder: Path) -> list[Figure]:
    """From start to first useful work of these stages, and of compose and inputs to their end."""
    project = Project(folder)
    project.compose()
    project.ok("python", "-m", "pipelines.inputs")
    if names != ["data"]:  # the others need what it makes
        for stage in ("data", "tokenize", "train"):
            project.ok("python", "-m", f"pipelines.{stage}", *STAGES[stage][0])
        (folder / "resume").rename(folder / "done")  # else there were nothing left to train
    work: dict[str, Work] = {name: up_to(project, name) for name in names}
    work["inputs"] = lambda: project.ok("python", "-m", "pipelines.inputs")
    work["compose"] = project.compose
    return [
        figure(f"start of stage {name}", seconds, "s", at_most=6.0)
        for name, seconds in in_turns(work, turns).items()
    ]


def in_vain(turns: int, folder: Path) -> Figure:
    project = Project(folder)
    project.ok("python", "-m", "pipelines.compose", "experiment=quickstart")
    project.ok("python", "-m", "pipelines.inputs")
    project.ok("python", "-c", MADE_UP)
    project.ok("dvc", "commit", "--force", "--quiet")
    count = sum("didn't change" in line for line in project.ok("dvc", "repro").splitlines())

    def repro() -> None:
        said = project.ok("dvc", "repro").splitlines()
        assert [line for line in said if line.startswith("Running")] == ["Running stage 'sources':"]

    title = f"dvc repro of quickstart, nothing to do ({count} stages)"
    return figure(title, in_turns({"repro": repro}, turns)["repro"], "s", at_most=5.0)


def measure(turns: int, quick: bool) -> list[Figure]:
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if quick:
            return [imports(turns), *stages(turns, ["data"], folder / "smoke")]
        return [
            imports(turns),
            *stages(turns, list(STAGES), folder / "smoke"),
            in_vain(turns, folder / "quickstart"),
        ]
