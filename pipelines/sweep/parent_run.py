"""The sweep's own run in MLflow, in which its trials are nested."""

import sys
from contextlib import suppress
from pathlib import Path

from pipelines.common.provenance import git_revision
from pipelines.sweep.plan import Plan
from pipelines.sweep.ranking import SweepAnalysis
from pipelines.tracking.describe import COMPARED, source_tags
from pipelines.tracking.location import in_project
from pipelines.tracking.log import now
from pipelines.tracking.outbox import Record, records
from pipelines.tracking.run import Tracking
from pipelines.tracking.store import AWAY, KEY, send_waiting


def open_parent(plan: Plan) -> Tracking:
    """Open the run, the same one however often the command is given."""
    tracking = Tracking(plan.experiment)
    uri = in_project(tracking.store.uri)
    same = [r for r in records(plan.experiment, "sweep") if r.uri == uri]
    record = same[-1] if same else Record(
        uri, plan.experiment, "sweep", spec_hash="", started=now()
    )  # fmt: skip
    tags = {KEY: record.key, "sweep": plan.name, "mlflow.source.git.commit": git_revision()}
    command = f"python -m pipelines.sweep {' '.join(sys.argv[1:])}"
    note = f"Sweep `{plan.name}`, made by `{command}`.\n\n{COMPARED}"
    record.tags = {**record.tags, **tags, **source_tags(note)}
    record.experiment_note = note
    record.status, record.ended = "RUNNING", None
    tracking.open(record)
    return tracking


def close_parent(tracking: Tracking, sweep: SweepAnalysis, report: Path) -> None:
    """Log the best trial and the report, and end the run."""
    plan = sweep.plan
    if best := sweep.best_trial:
        tags = {f"best.{key}": str(value) for key, value in plan.settings[best.name].items()}
        tracking.record.tags = {**tracking.record.tags, "best.trial": best.name, **tags}
        bound = best.bound(plan.unit)
        tracking.log_figures(
            f"best/bound_{plan.unit}", {"mean": bound.mean, "se": bound.se}, len(sweep.runs)
        )
    for path in (report.parent / "sweep.yaml", report / "index.html", report / "trials.csv"):
        tracking.log_artifact(path)
    tracking.finish()
    with suppress(*AWAY):  # logged already, and kept in the outbox
        send_waiting(tracking.store)  # trials that could not be nested yet
