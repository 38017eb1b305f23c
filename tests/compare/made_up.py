"""Arms put together from numbers, without files; figures are bits per token."""

from collections.abc import Sequence
from typing import Any

from pipelines.artifacts.results import Details, Estimate, EvaluationResult, Figures
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm
from pipelines.config.arms import family_of
from pipelines.config.schema import Run

SIZE = {"parameters": 1000, "trained_tokens": 5000}


def arm_of(
    name: str,
    figures: Sequence[Figures],
    kappa: float | None = 1.0,
    evaluation: dict[str, Any] = SIZE,
    design: dict[str, Any] = {},  # noqa: B006
    **settings: Any,
) -> Arm:
    """An arm with these held-out figures of each seed, all on two documents of one token."""
    runs = []
    for seed, each in enumerate(figures):
        spec = Run(**{"data": "text", "model": "small", "tokens": 5000} | settings)
        spec.kappa_bits, spec.seed = kappa, seed
        measured = EvaluationResult(2, 2, 1.0, each, **evaluation)
        mean = (each.nll or each.filtering or Estimate(0.0, 0.0)).mean
        details, family = Details([], [mean - 1, mean + 1], [1, 1]), family_of(spec, {})
        run = RunResults(f"{name}_s{seed}", spec, 3, "text", measured, details, [])
        run.design_changes, run.arm, run.family = design, name, family
        runs.append(run)
    return Arm(name, runs)


def baseline(name: str, *bounds: float, **others: Any) -> Arm:
    return arm_of(name, [Figures(nll=Estimate(bound, 0.0)) for bound in bounds], None, **others)


def free_transformer(
    name: str,
    *bounds: float,
    ce: float = 1.0,
    kl: float = 0.5,
    se: float = 0.0,
    filtering: dict[str, float] = {},  # noqa: B006
    **others: Any,
) -> Arm:
    """``filtering``: errors of the filter."""

    def figures(bound: float) -> Figures:
        means = {"ce": ce, "kl": kl, "use": bound - ce, "waste": ce + kl - bound}
        found = {key: Estimate(mean, se) for key, mean in means.items()}
        return Figures(filtering=Estimate(bound, se, **filtering), **found)

    return arm_of(name, [figures(bound) for bound in bounds], **others)
