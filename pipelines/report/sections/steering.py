"""Whether pinned z steer the continuations of text."""

from ftmodel.analysis.differences import LEVEL
from ftmodel.analysis.permutation import adjusted
from pipelines.artifacts.latent_results import Steering
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section, Table
from pipelines.report.wording import estimate, number

HEAD = [
    "run",
    "κ",
    "distance, same z",
    "distance, different z",
    "different ÷ same",
    "permuted z: mean",
    "95 % below",
    "p",
    "adjusted p",
    "verdict",
]


def section(analysis: Analysis) -> Section | None:
    measured = [(run, s) for run in analysis.runs if (s := run.evaluation.steering)]
    if all(run.baseline for run, _ in measured):
        return None
    tests = {run.name: s.p_value for run, s in measured if s.p_value is not None}
    ps = dict(zip(tests, adjusted([*tests.values()]), strict=True))
    rows = []
    for run, s in measured:
        pinned = "prefix" if run.run.random_prefix else "z"
        rows.append([run.name, run.kappa, *row_of(s), *judged(s, ps.get(run.name), pinned)])
    title = "Does a pinned z steer generation?"
    return Section("steering", title, [Table(HEAD, rows)])


def row_of(steering: Steering) -> list[str]:
    distances = map(estimate, (steering.same, steering.different, steering.ratio))
    p = steering.p_value
    chance = map(number, (steering.null_mean, steering.null_95))
    return [*distances, *chance, "–" if p is None else f"{p:.3g}"]


def judged(steering: Steering, p: float | None, pinned: str) -> list[str]:
    """By p adjusted for all runs."""
    if p is None or steering.ratio is None:
        return ["–", "–"]
    steers = p < LEVEL and steering.ratio.mean > 1
    return [f"{p:.3g}", f"{pinned} steers" if steers else "not shown to steer"]
