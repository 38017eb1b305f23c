"""Keeps the outcomes of a checkpoint's tasks until all are done."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from pipelines.artifacts import result_files
from pipelines.artifacts.suite_results import SampledScore, TaskResult
from pipelines.common.atomic_files import write_file
from pipelines.common.strict_json import dumps
from pipelines.config.suite import SuiteTask
from pipelines.suite.pass_at_k import SampledOutcome
from pipelines.suite.tasks import Outcome

AnyOutcome = TypeVar("AnyOutcome", Outcome, SampledOutcome)
RESULTS = {Outcome: TaskResult, SampledOutcome: SampledScore}  # what an outcome begins with


class Progress:
    """The outcomes of a checkpoint's tasks so far, in files that survive a kill."""

    def __init__(self, folder: Path, decisive: str) -> None:
        self.folder, self.decisive = folder, decisive
        self.used: set[Path] = set()
        folder.mkdir(parents=True, exist_ok=True)

    def outcome(
        self, name: str, spec: SuiteTask, kind: type[AnyOutcome], make: Callable[[], AnyOutcome]
    ) -> AnyOutcome:
        """The outcome that is kept here, or a new one, which is then kept."""
        key = sha256(f"{self.decisive} {spec}".encode()).hexdigest()
        path = self.folder / f"{name}-{key}.json"
        self.used.add(path)
        if path.exists():
            try:
                # no pydantic: a text of a benchmark may hold what is no Unicode character
                result, scores, log = json.loads(path.read_text(encoding="utf-8"))
                if not isinstance(log, list):
                    raise TypeError
                known: Any = result_files.validate(RESULTS[kind], json.dumps(result).encode())
                return kind(known, scores, log)
            except (OSError, ValueError, TypeError, RecursionError):
                print(f"{path} is damaged: {name} is scored again", flush=True)
        outcome = make()
        new, scores, log = outcome
        write_file(path, dumps([asdict(new), scores, log]))
        return outcome

    def remove(self) -> None:
        """Delete the outcomes that were used; other settings' and checkpoints' stay."""
        for path in self.used:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            self.folder.rmdir()
