"""Whether pinned z steer the continuations of text: a table, and a sentence on each run."""

from ftmodel.analysis.differences import LEVEL
from ftmodel.analysis.permutation import adjusted
from pipelines.artifacts.latent_results import Steering
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section
from pipelines.report.wording import listed, p_value

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
    sentences = findings([(run.name, s) for run, s in measured if s.p_value is not None])
    return Section("steering", "Does a pinned z steer generation?", sentences, [HEAD, *rows])


def findings(tests: list[tuple[str, Steering]]) -> list[str]:
    """A sentence on each run whose z steers, by the p-values of all runs, and one on the others."""
    ps = adjusted([steering.p_value or 0 for _, steering in tests])
    sentences, others = [], []
    for (name, steering), p in zip(tests, ps, strict=True):
        assert steering.ratio and steering.p_value is not None
        share = 100 * (steering.ratio.mean - 1)
        if p < LEVEL and share > 0:
            sentences.append(
                f"{name}: continuations with different z lie {share:.1f} % further apart than with "
                f"the same ({p_value(steering.p_value, p, len(ps))})."
            )
        else:
            others.append((p, name))
    if others:
        least = min(p for p, _ in others)
        names = listed(name for _, name in others)
        sign = "≥" if len(others) > 1 else "="
        kind = "adjusted p" if len(ps) > 1 else "p"
        sentences.append(
            f"z is not shown to steer what is generated: {names} ({kind} {sign} {least:.3g})."
        )
    return sentences


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
