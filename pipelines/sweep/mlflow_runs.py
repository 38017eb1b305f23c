"""MLflow runs: the sweep's own, and the trials', nested in it."""

import sys
from contextlib import suppress
from pathlib import Path

from pipelines.artifacts.checkpoint import Manifest, read_checkpoint
from pipelines.artifacts.paths import published_journal
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.errors import UserError
from pipelines.common.provenance import git_revision
from pipelines.sweep.outcome import TrialOutcome
from pipelines.sweep.plan import SweepPlan
from pipelines.tracking.describe import WHAT_IS_COMPARED, source_tags
from pipelines.tracking.journal import Journal, open_journal
from pipelines.tracking.live import Tracking
from pipelines.tracking.store import AWAY
from pipelines.tracking.sync import sync_all
from pipelines.train.core.manifest import make_manifest


def open_parent(plan: SweepPlan) -> Tracking:
    """Open the sweep's run, the same one however often the command is given."""
    path = Path("sweeps") / plan.name / "tracking.jsonl"
    if path.exists():
        journal = Journal(path)
    else:
        journal = Journal(path, experiment=plan.experiment, run_name="sweep")
    command = f"python -m pipelines.sweep {' '.join(sys.argv[1:])}"
    note = f"Sweep `{plan.name}`, made by `{command}`.\n\n{WHAT_IS_COMPARED}"
    tags = {"sweep": plan.name, "mlflow.source.git.commit": git_revision()}
    journal.append(tags=tags | source_tags(note, command), status="RUNNING")
    return Tracking(journal, note)


def close_parent(tracking: Tracking, plan: SweepPlan, best: TrialOutcome, experiment: Path) -> None:
    """Log the best trial and the experiment that it has led to, and end the run."""
    settings = {f"best.{key}": str(value) for key, value in plan.settings[best.name].items()}
    tags = {"best.trial": best.name, "best.bound": str(best.bound), "experiment": str(experiment)}
    tracking.journal.append(tags=tags | settings)
    tracking.finish()
    with suppress(*AWAY):  # logged already
        sync_all(tracking.sync.store, plan.experiment)  # trials that could not be nested yet


def is_trained(spec: RunSpec, manifest: Manifest) -> bool:
    with suppress(UserError):  # there is none, or it is damaged: it is trained
        return read_checkpoint(spec.checkpoint())[1].spec_hash == manifest.spec_hash
    return False


def journal_of(spec: RunSpec, manifest: Manifest, trained: bool, go_on: bool) -> Journal:
    """The journal of a trial that has been trained, or will be; see open_journal."""
    if trained:
        return Journal(published_journal(manifest.experiment, spec.name))
    command = f"python -m pipelines.sweep sweep={manifest.experiment.removeprefix('sweep_')}"
    return open_journal(manifest, spec.experiment, go_on, command)


def nest(spec: RunSpec, manifest: Manifest, trained: bool, parent: str) -> None:
    """Nest the MLflow run that training will begin or continue in ``parent``'s."""
    journal = journal_of(spec, manifest, trained, go_on=any(manifest.resume.glob("*.ckpt")))
    if journal.run.parent != parent:
        journal.append(parent=parent)


def end_trial(spec: RunSpec, parent: str, failed: bool) -> None:
    """End the MLflow run of a trial that failed or, unless ``failed``, that ASHA stopped. A trial
    ends its run itself, unless its process was lost, perhaps even before it nested the run.
    """
    manifest = make_manifest(spec, spec.shards())
    journal = journal_of(spec, manifest, is_trained(spec, manifest), go_on=True)
    if journal.run.status == "RUNNING":
        journal.append(parent=parent)
        Tracking(journal).finish("FAILED" if failed else "KILLED")
