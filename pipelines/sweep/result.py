"""The outcome of a trial, in a file of its own.

sweeps/<sweep>/trials/<trial>/result.json is written atomically when a trial has ended. It holds a
hash of all that decides the result, so that a finished trial runs again only if that has changed.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from pipelines.artifacts import results
from pipelines.artifacts.curve import Curve, CurveRow, row_of
from pipelines.artifacts.result_files import validate
from pipelines.artifacts.results import Details, Evaluation
from pipelines.artifacts.run_results import RunResults
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.strict_json import dumps
from pipelines.config.schema import Experiment

DONE, STOPPED, FAILED = "done", "stopped early", "failed"


@dataclass
class Result:
    """result.json: the outcome of a trial; it has figures only if the trial is done."""

    trial: str
    hash: str  # of all that decides it
    status: str  # DONE, STOPPED or FAILED
    stopper: str = ""  # what stopped it early: the settings of ASHA
    error: str = ""
    evaluation: Evaluation | None = None
    details: Details | None = None  # bounds and sizes of the documents alone
    curve: Curve = field(default_factory=list)

    def run_results(self, experiment: Experiment) -> RunResults:
        """The trial as a run of a comparison; it must be done."""
        assert self.evaluation and self.details, f"{self.trial}: {self.status}"
        spec = RunSpec(experiment, self.trial)
        return RunResults.of(spec, self.evaluation, self.details, self.curve)


def of_documents(details: Details) -> Details:
    """Only what differences between trials are computed from."""
    return Details(
        kl_per_bit=[],
        bound_bits=details.bound_bits,
        document_tokens=details.document_tokens,
        document_bytes=details.document_bytes,
    )


def read_result(path: Path) -> Result | None:
    """None if there is none that is readable."""
    try:
        result = validate(Result, path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        print(f"{path}: ignored, not readable ({field}: {first['msg']})")
        return None
    return result


class Folder:
    """sweeps/<sweep>/trials/<trial>/: the result, and until then the rows of the curve."""

    def __init__(self, sweep: str, trial: str) -> None:
        self.path = Path("sweeps") / sweep / "trials" / trial
        self.result, self.rows = self.path / "result.json", self.path / "rows.jsonl"
        self.log = self.path / "log.txt"

    def read(self, hash: str) -> Result | None:
        """The result with this hash, of the last attempt or set aside."""
        for path in (self.result, self.aside(hash)):
            if (result := read_result(path)) and result.hash == hash:
                return result
        return None

    def aside(self, hash: str) -> Path:
        return self.path / f"result.{hash}.json"

    def set_aside(self) -> None:
        """Make room for a new result; a finished one is kept, to be valid again with its hash."""
        result = read_result(self.result)
        if result and result.status == DONE:
            path = self.aside(result.hash)
            self.result.rename(path)
            print(f"{result.trial}: of other code or settings; its result is kept in {path}")
        else:
            self.result.unlink(missing_ok=True)

    def write(self, result: Result) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        results.write(self.result, result)

    def add_row(self, hash: str, row: CurveRow) -> None:
        with open(self.rows, "a", encoding="utf-8") as file:
            file.write(dumps({"hash": hash, **row.figures()}) + "\n")

    def read_rows(self, hash: str) -> Curve:
        """Rows with this hash, each step once however often the trial was interrupted."""
        rows: dict[int, CurveRow] = {}
        lines = self.rows.read_text(encoding="utf-8").splitlines() if self.rows.exists() else []
        for line in lines:
            try:
                figures = json.loads(line)
            except ValueError:  # interrupted while it was written
                continue
            if figures.pop("hash") == hash:
                row = row_of(figures)
                rows[row.step] = row
        return [rows[step] for step in sorted(rows)]
