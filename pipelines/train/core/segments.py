"""The legs of a run's training, and the checkpoint that it goes on from.

Under wsd every budget of a run decays from a trunk that all share, and the trunk is trained once:
a leg follows the schedule of its budget from where the trunk has got to, leaves the trunk where its
decay begins, and the next leg goes on from there. Any other run has one leg.

resume/<experiment>/<run>/
    00000120.ckpt              the trunk, and the last leg to its end: the newest two
    decay-5200/00000130.ckpt   the decay of a smaller budget, while it lasts: the newest two
    budgets/5200.ckpt          the weights at the end of a smaller budget, and their card
"""

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from ftmodel.model.schedule import decay_start
from pipelines.artifacts.checkpoint import Card, read_checkpoint, remove
from pipelines.artifacts.paths import resume_folder, tokens_folder
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.errors import UserError
from pipelines.config.derived import Budget
from pipelines.config.schema import Experiment, Run, Schedule
from pipelines.train.core.manifest import make_card


@dataclass(frozen=True)
class Leg:
    """Training on the schedule of one budget, to its end. All steps count from nothing."""

    budget: Budget
    trunk: int  # steps that are the trunk's; of the last leg, which no other follows, all
    keep: dict[int, int]  # the step where each smaller budget ends on this leg: its tokens, listed

    @property
    def steps(self) -> int:
        return self.budget.steps

    @property
    def last(self) -> bool:
        return self.trunk == self.steps

    def folder(self, root: Path, step: int) -> Path:
        """Where its checkpoint of a step belongs, in the run's folder of resume/."""
        return root if step <= self.trunk else root / f"decay-{self.budget.listed}"


def kept_path(root: Path, tokens: int) -> Path:
    """Where the weights of a smaller budget wait, in the run's folder of resume/."""
    return root / "budgets" / f"{tokens}.ckpt"


def legs(experiment: Experiment, run: Run) -> list[Leg]:
    *smaller, final = experiment.budgets(run)
    optim = experiment.models[run.model].optim
    if optim.schedule is Schedule.cosine:
        return [Leg(final, final.steps, {budget.steps: budget.listed for budget in smaller})]
    decays = [
        Leg(budget, decay_start(optim.decay, budget.steps), {budget.steps: budget.listed})
        for budget in smaller
    ]
    return [*decays, Leg(final, final.steps, {})]


def steps_taken(training: list[Leg]) -> int:
    """Optimizer steps of all legs: the trunk once, and each decay."""
    before = [0, *(leg.trunk for leg in training)]
    return sum(leg.steps - begun for leg, begun in zip(training, before, strict=False))


@dataclass
class Start:
    """What a run goes on from: its card, its first leg that has not ended (or else its last), and
    the newest checkpoint of that leg or of the trunk before it, if there is one.
    """

    card: Card
    leg: Leg
    checkpoint: Path | None


def find_start(experiment: Experiment, name: str) -> Start:
    """Raises UserError if there are no tokens to train on."""
    run, root = experiment.runs[name], resume_folder(experiment.name, name)
    card = make_card(experiment, name, Shards(tokens_folder(run.data)))
    for leg in legs(experiment, run):
        missing = [step for step, n in leg.keep.items() if not is_kept(kept_path(root, n), card)]
        if missing or leg.last:
            break
        remove(leg.folder(root, leg.steps))
    until = missing[0] - 1 if missing else leg.steps  # what is missing lies ahead once more
    newest = newest_checkpoint(root, card, min(until, leg.trunk))
    if not leg.last:
        newest = newest_checkpoint(leg.folder(root, leg.steps), card, until) or newest
    return Start(card, leg, newest[0] if newest else None)


def is_kept(path: Path, card: Card) -> bool:
    return read_own(path, card, "its budget is trained for again") is not None


def newest_checkpoint(
    folder: Path, card: Card, until: float = inf
) -> tuple[Path, dict[str, Any]] | None:
    """The newest readable checkpoint of this very run up to a step, and its content.

    Fills in the card's MLflow run.
    """
    for path in sorted(folder.glob("*.ckpt"), reverse=True):
        if int(path.stem) > until:
            continue
        if content := read_own(path, card, "trying the one before it"):
            return path, content
    return None


def read_own(path: Path, card: Card, otherwise: str) -> dict[str, Any] | None:
    """The content of a checkpoint, if there is one and it is of this very run.

    One of another specification goes. A damaged one is reported, with what is done ``otherwise``,
    and put aside. Fills in the card's MLflow run.
    """
    if not path.exists():
        return None
    try:
        content, found = read_checkpoint(path, mmap=True)
    except UserError as error:
        aside = path.with_suffix(".unreadable")
        remove(aside)
        path.rename(aside)
        print(f"{error}; put aside as {aside.name}, {otherwise}", flush=True)
        return None
    if found.spec_hash != card.spec_hash:
        print(f"{path} belongs to another specification of {card.run_name}: removed", flush=True)
        remove(path)
        return None
    card.mlflow_run_id = found.mlflow_run_id or card.mlflow_run_id
    return content
