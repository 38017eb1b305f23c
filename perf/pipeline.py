"""What the pipeline costs beside its work: imports, and `dvc repro` in vain.

import      every module of ftmodel in a new interpreter, after torch
dvc repro   of the experiment quickstart, where nothing is to be done. Its stages' outputs are
            made up and committed: DVC compares sizes and times of files, whatever is in them
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from perf.measure import Figure, figure, in_turns
from pipelines.common.atomic_files import ROOT
from tests.support.project_copy import Project

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
    files = [path.relative_to(ROOT) for path in (ROOT / "ftmodel").rglob("[a-z]*.py")]
    modules = ", ".join(sorted(".".join(path.with_suffix("").parts) for path in files))
    code = f"import torch; from time import perf_counter as now; start = now(); import {modules}; "
    command = [sys.executable, "-c", f"{code}print(now() - start)"]
    seconds = [float(subprocess.check_output(command, cwd=ROOT)) for _ in range(turns)]
    return figure("import of ftmodel beyond torch's", seconds, "s", at_most=2.0)


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
    with TemporaryDirectory() as folder:
        return [imports(turns), *([] if quick else [in_vain(turns, Path(folder))])]
