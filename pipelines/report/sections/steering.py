"""Whether pinned z steer the continuations of text."""

from ftmodel.analysis.differences import LEVEL
from ftmodel.analysis.permutation import adjusted
from pipelines.artifacts.latent_results import Steering
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section, Table, explained

HEAD = ["run", "κ", "distance, same z", "distance, different z", "different ÷ same",
        "permuted z: mean", "95 % below", "p", "adjusted p", "verdict"]  # fmt: skip


TEXT = """\
Held-out beginnings, each continued with several z, a z staying the same at every new token: if z
decides something, continuations with different z lie further apart than those with the same z.
The distance is the share of tokens that one continuation has and the other has not. These z are
drawn uniformly, even where a learned prior would rarely draw them. The verdict takes p adjusted
for the number of runs. ± is one standard error over prompts, of these codes; a baseline’s
distance is what drawing tokens at the same temperature does alone."""


def section(analysis: Analysis) -> Section | None:
    measured = [(run, s) for run in analysis.runs if (s := run.evaluation.steering)]
    if all(run.baseline for run, _ in measured):
        return None
    tests = [(run.name, s.p_value) for run, s in measured if s.p_value is not None]
    ps = dict(zip((name for name, _ in tests), adjusted([p for _, p in tests]), strict=True))
    rows = [[run.name, run.kappa, *cells(s), *verdict(s, ps.get(run.name))] for run, s in measured]
    blocks = [explained(TEXT, "steering"), Table(HEAD, rows)]
    return Section("steering", "Does a pinned z steer generation?", blocks)


def verdict(steering: Steering, p: float | None) -> list[str]:
    """By p adjusted for all runs."""
    if p is None or steering.ratio is None:
        return ["–", "–"]
    steers = p < LEVEL and steering.ratio.mean > 1
    return [f"{p:.3g}", "z steers" if steers else "not shown to steer"]


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
