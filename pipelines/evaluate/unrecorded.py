"""Figures of an evaluation that could not be recorded, as params.yaml had changed by its end. They
wait in resume/ until it says again what it said.
"""

import shutil
from contextlib import suppress
from dataclasses import asdict

import torch

from pipelines.artifacts import results
from pipelines.artifacts.checkpoint import Manifest
from pipelines.artifacts.manifest import hash_of
from pipelines.artifacts.results import Details, EvaluationResult
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.source_code import code_version


class Unrecorded:
    """Those of a checkpoint that would be measured again as they are."""

    def __init__(self, spec: RunSpec, manifest: Manifest) -> None:
        decisive = (
            *(asdict(spec.experiment.evaluation), manifest.spec_hash, manifest.data_hash),
            *(code_version("evaluate"), str(torch.__version__)),
        )
        self.folder = spec.beside_resume("evaluate") / hash_of(decisive)[:16]

    def read(self) -> tuple[EvaluationResult, Details] | None:
        if not self.folder.exists():
            return None
        print(f"taken from {self.folder}, where they were kept", flush=True)
        return (
            results.read(self.folder / "evaluation.json", EvaluationResult, "evaluate"),
            results.read(self.folder / "details.json", Details, "evaluate"),
        )

    def write(self, evaluation: EvaluationResult, details: Details) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        results.write(self.folder / "evaluation.json", evaluation)
        results.write(self.folder / "details.json", details)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # not there, or with others
            self.folder.parent.rmdir()
