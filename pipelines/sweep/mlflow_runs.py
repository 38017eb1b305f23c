"""MLflow runs: the sweep's own, and those of the trials, which are nested in it."""

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

ENDS = ("failure", "stopped_early")  # tags of a trial


def open_parent(plan: SweepPlan) -> Tracking:
    """Open the run, the same one however often the command is given."""
    path = Path("sweeps") / plan.name / "tracking.jsonl"
    if path.exists():
        journal = Journal(path)
    else:
        journal = Journal(path, experiment=plan.experiment, run_name="sweep")
    command = f"python -m pipelines.sweep {' '.join(sys.argv[1:])}"
    note = f"Sweep `{plan.name}`, made by `{command}`.\n\n{WHAT_IS_COMPARED}"
    tags = {"sweep": plan.name, "mlflow.source.git.commit": git_revision(), **source_tags(note)}
    journal.append(tags=tags, status="RUNNING")
    return Tracking(journal, note)


def close_parent(tracking: Tracking, plan: SweepPlan, best: TrialOutcome, experiment: Path) -> None:
    """Log the best trial and the experiment that it has led to, and end the run."""
    assert best.bound
    settings = {f"best.{key}": str(value) for key, value in plan.settings[best.name].items()}
    tracking.tag(**{"best.trial": best.name, **settings})
    figures = {"mean": best.bound.mean, "se": best.bound.se}
    tracking.log_figures("best/bound_bits_per_token", figures, len(plan.trials))
    tracking.journal.append(files=[str(experiment)])
    tracking.finish()
    with suppress(*AWAY):  # logged already
        sync_all(tracking.sync.store, plan.experiment)  # trials that could not be nested yet


def is_trained(spec: RunSpec, manifest: Manifest) -> bool:
    path = spec.checkpoint()
    try:
        return path.exists() and read_checkpoint(path)[1].spec_hash == manifest.spec_hash
    except UserError:  # damaged: it is trained again
        return False


def journal_of(spec: RunSpec, manifest: Manifest, trained: bool, go_on: bool) -> Journal:
    """That of a trial which has been trained, or is trained; see open_journal."""
    if trained:
        return Journal(published_journal(manifest.experiment, spec.name))
    command = f"python -m pipelines.sweep sweep={manifest.experiment.removeprefix('sweep_')}"
    return open_journal(manifest, spec.experiment, go_on, command)


def nest(spec: RunSpec, manifest: Manifest, trained: bool, parent: str) -> None:
    """Nest the MLflow run that training will begin or continue in ``parent``'s."""
    journal = journal_of(spec, manifest, trained, go_on=any(manifest.resume.glob("*.ckpt")))
    earlier = {key: "" for key in ENDS if journal.run.tags.get(key)}
    if journal.run.parent != parent or earlier:
        journal.append(parent=parent, tags=earlier)


def mark(spec: RunSpec, parent: str, failure: str) -> None:
    """End the MLflow run of a trial that ``failure`` has ended, or, if that is empty, ASHA."""
    manifest, key = make_manifest(spec, spec.shards()), ENDS[not failure]
    journal = journal_of(spec, manifest, is_trained(spec, manifest), go_on=True)
    if journal.run.tags.get(key):  # under an earlier command
        return
    # the process of the trial may have been lost before it nested its run
    journal.append(parent=parent, tags={key: failure[:500] or "yes"})
    Tracking(journal).finish("FAILED" if failure else "KILLED")
