"""Whether pinned z steer the continuations of text: a table, and a sentence on each run."""

from pipelines.artifacts.latent_results import Steering
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section

SHOWN = 0.05  # p below which z is said to steer
HEAD = [
    "run",
    "κ",
    "distance, same z",
    "distance, different z",
    "different ÷ same",
    "permuted z: mean",
    "95 % below",
    "p",
]


def section(analysis: Analysis) -> Section | None:
    measured = [(run, s) for run in analysis.runs if (s := run.evaluation.steering)]
    if all(run.baseline for run, _ in measured):
        return None
    rows = [[run.name, run.kappa, *cells(steering)] for run, steering in measured]
    sentences = [f"{run.name}: {words(s)}." for run, s in measured if s.ratio]
    return Section("steering", "Does a pinned z steer generation?", sentences, [HEAD, *rows])


def cells(steering: Steering) -> list[str]:
    same, different, ratio = steering.same, steering.different, steering.ratio
    chance = (steering.null_mean, steering.null_95)
    p = steering.p_value
    return [
        str(same),
        str(different or "–"),
        str(ratio or "–"),
        *("–" if value is None else f"{value:.4f}" for value in chance),
        "–" if p is None else f"{p:.3g}",
    ]


def words(steering: Steering) -> str:
    assert steering.ratio and steering.p_value is not None
    p = f"p = {steering.p_value:.3g}"
    if steering.p_value >= SHOWN or steering.ratio.mean <= 1:
        return f"z is not shown to steer what is generated ({p})"
    share = 100 * (steering.ratio.mean - 1)
    return (
        f"continuations with different z lie {share:.1f} % further apart than with the same ({p})"
    )
