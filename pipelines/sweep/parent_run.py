"""The sweep's own run in MLflow, in which its trials are nested."""

import sys
from contextlib import suppress
from pathlib import Path

from pipelines.common.provenance import git_revision
from pipelines.sweep.plan import Plan
from pipelines.sweep.ranking import SweepAnalysis
from pipelines.tracking.describe import COMPARED, source_tags
from pipelines.tracking.journal import Journal
from pipelines.tracking.live import Tracking
from pipelines.tracking.store import AWAY
from pipelines.tracking.sync import sync_all


def open_parent(plan: Plan) -> Tracking:
    """Open the run, the same one however often the command is given."""
    path = Path("sweeps") / plan.name / "tracking.jsonl"
    if path.exists():
        journal = Journal(path)
    else:
        journal = Journal(path, experiment=plan.experiment, run_name="sweep")
    command = f"python -m pipelines.sweep {' '.join(sys.argv[1:])}"
    note = f"Sweep `{plan.name}`, made by `{command}`.\n\n{COMPARED}"
    tags = {"sweep": plan.name, "mlflow.source.git.commit": git_revision(), **source_tags(note)}
    journal.append(tags=tags, status="RUNNING")
    return Tracking(journal, note)


def close_parent(tracking: Tracking, sweep: SweepAnalysis, report: Path) -> None:
    """Log the best trial and the report, and end the run."""
    plan = sweep.plan
    if best := sweep.best_trial:
        tags = {f"best.{key}": str(value) for key, value in plan.settings[best.name].items()}
        tracking.tag(**{"best.trial": best.name, **tags})
        bound = best.bound(plan.unit)
        tracking.log_figures(
            f"best/bound_{plan.unit}", {"mean": bound.mean, "se": bound.se}, len(sweep.runs)
        )
    files = (report.parent / "sweep.yaml", report / "index.html", report / "trials.csv")
    tracking.journal.append(files=[str(path) for path in files])
    tracking.finish()
    with suppress(*AWAY):  # logged already
        sync_all(tracking.sync.store, plan.experiment)  # trials that could not be nested yet
