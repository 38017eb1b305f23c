"""The tables of a report for programs and for the terminal: arms.csv, runs.csv, curves.csv and
summary.txt.
"""

from math import isnan
from pathlib import Path
from typing import Any

from ftmodel.config import given
from ftmodel.designs.hinge import LN2
from pipelines.artifacts.result_files import flat_numbers
from pipelines.artifacts.results import UNITS, Estimate
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm, last_third, over_seeds
from pipelines.compare.comparison import UseOfZ
from pipelines.config.arms import recipe
from pipelines.host.console import aligned
from pipelines.report.analysis import Analysis
from pipelines.report.benchmarks import family_benchmarks
from pipelines.report.sections.figure4 import arm_scores
from pipelines.report.verdicts import answer, on_benchmarks
from pipelines.report.wording import number


def curve_rows(runs: list[RunResults]) -> list[dict[str, Any]]:
    """Training bounds of all runs, one row per point, for `dvc plots`."""
    return [
        {
            "run": run.name,
            "tokens": row.tokens,
            "step": row.step,
            "bits_per_token": row.bound_bits,
            "ce_bits_per_token": row.ce_nats / LN2,
            "kl_bits_per_token": row.kl_bits,
        }
        for run in runs
        for row in run.curve
    ]


def run_row(run: RunResults) -> dict[str, Any]:
    """Every number measured on a run, at full precision, under flat names."""
    row = {"run": run.name, **vars(run.run), **latent_cells(run)}
    row["budgets"] = " ".join(map(str, run.run.budgets))
    row |= {column_name(path): value for path, value in flat_numbers(run.evaluation).items()}
    row |= {} if (late := last_third(run)) is None else {"last_third": late}
    for task, result in (run.suite.tasks if run.suite else {}).items():
        row |= {f"suite_{task}": result.value, f"suite_{task}_se": result.se}
        for key, score in result.other_figures(task).items():
            name = f"suite_{key.replace('/', '_')}"
            row |= {name: score.value, f"{name}_se": score.se}
    return row


def latent_cells(run: RunResults) -> dict[str, Any]:
    """H, and the settings in which a run's latent differs from its preset's, in words."""
    design = " ".join(f"{key}={value}" for key, value in given(run.run.latent).items())
    return {"latent_bits": run.latent_bits, "latent": design}


def column_name(path: str) -> str:
    """A path's column: bits_per_token/nll/mean is nll_bits_per_token, …/nll/se is …_se."""
    first, *names = path.removesuffix("/mean").split("/")
    if first in UNITS:
        figure, *error = names
        return "_".join([figure, first, *error])
    return "_".join([first, *names])


def arm_row(arm: Arm) -> dict[str, Any]:
    """Mean and spread over seeds of everything measured on an arm, at full precision."""
    row = {"arm": arm.name, **recipe(arm.run), "init_from": arm.start, **latent_cells(arm.first)}
    row |= {"seeds": " ".join(map(str, arm.seeds)), "n": len(arm.runs)}
    for unit in UNITS:
        for name, estimate in vars(arm.figures(unit)).items():
            row |= estimate_cells(f"{name}_{unit}", estimate)
    row |= estimate_cells("gap_nats_per_token", arm.gap)
    elbo_gap = arm.mean_of(lambda run: run.evaluation.elbo_gap_nats_per_token)
    row |= estimate_cells("elbo_gap_nats_per_token", elbo_gap)
    row |= {"parameters": arm.parameters, "trained_tokens": arm.trained_tokens}
    row |= {"tokens_per_second": arm.tokens_per_second}
    row |= estimate_cells("last_third", over_seeds(arm.last_third) if arm.last_third else None)
    row |= {} if arm.baseline else {"collapsed": len(arm.collapsed)}
    return row | suite_cells(arm)


def suite_cells(arm: Arm) -> dict[str, Any]:
    """The arm's own benchmarks, final and over the last third of training."""
    if any(run.suite is None for run in arm.runs):
        return {}
    row: dict[str, Any] = {}
    alone = family_benchmarks([arm])
    for scores, name in ((alone.final, "suite_{}"), (alone.last_third, "suite_{}_last_third")):
        for task, by_arm in scores.items():
            score = by_arm.get(arm.name)
            row |= estimate_cells(name.format(task), score.value if score else None)
    return row


def estimate_cells(name: str, estimate: Estimate | None) -> dict[str, Any]:
    if estimate is None:
        return {}
    row = {name: estimate.mean} | ({} if isnan(estimate.se) else {f"{name}_se": estimate.se})
    return row if isnan(estimate.spread) else row | {f"{name}_spread": estimate.spread}


def summary(analysis: Analysis, page: Path) -> str:
    """One line per arm, compared by the first column in bits; below them the findings."""
    cells = [summary_row(arm, analysis.uses.get(arm.name)) for arm in analysis.arms]
    heads = [head for head in cells[0] if any(row[head] != "–" for row in cells)]
    lines = aligned([heads, *([row[head] for head in heads] for row in cells)])
    notes = {
        "bits/token": "bits: NLL of a baseline, filtering bound of a Free Transformer; ± standard "
        "error over documents",
        "seeds": "seeds: how many, and the standard deviation of the bound over them, bits/byte "
        "for text",
        "use of z": "use of z: filtering bound − reconstruction CE, as a share of the KL",
        "gap": "gap: bound − exact entropy, nats/token",
        "pinned": "pinned: spread of the target with pinned z ÷ with fresh z; noise: with pinned z",
    }
    return "\n".join(
        (
            *lines,
            "",
            *(note for head, note in notes.items() if head in heads),
            "",
            *(f"{data}: {answer(data, analysis)}" for data in analysis.by_data),
            *benchmark_lines(analysis),
            f"The report is in {page}. Next: `make ui` (MLflow){sampling(analysis)}.",
            "",
        )
    )


def benchmark_lines(analysis: Analysis) -> list[str]:
    """How the arms compare with their baselines on benchmarks."""
    suites = [suite for suite in analysis.benchmarks if suite.baseline]
    return [
        f"{arm.name} on benchmarks: {', '.join(words)}"
        for arm in analysis.arms
        if (words := on_benchmarks(suites, arm))
    ]


def kl_share(use: UseOfZ) -> float:
    """Use of z as a share of its KL, rounded to a hundredth; 0 without a KL."""
    return round(use.use.mean / use.kl.mean, 2) + 0.0 if use.kl.mean > 0 else 0.0  # not −0


def sampling(analysis: Analysis) -> str:
    """A command that generates with the Free Transformer that uses z most and stays valid."""

    def valid_use(use: UseOfZ) -> float:
        valid = arm_scores(use.arm).get("valid_fresh")
        return kl_share(use) * (1.0 if valid is None else valid)

    uses = [use for use in analysis.uses.values() if use.arm.run.kappa_bits]
    best = max(uses, key=valid_use, default=None)
    return f", `ftlab sample {best.arm.first.name} --z pinned`" if best else ""


def summary_row(arm: Arm, use: UseOfZ | None) -> dict[str, str]:
    kl, bound = arm.figures("bits_per_token").kl, arm.bound()
    scores = arm_scores(arm)
    spread = "" if isnan(bound.spread) else f": {bound.spread:.4f}"
    return {
        "arm": arm.name + (f" ({arm.collapse})" if arm.collapsed else ""),
        "data": arm.run.data,
        "κ": arm.first.kappa,
        "seeds": f"{len(arm.runs)}{spread}",
        "bits/byte": str(bound) if arm.unit == "bits_per_byte" else "–",
        "bits/token": str(arm.bound("bits_per_token")),
        "KL bits": f"{kl.mean:.4f}" if kl else "–",
        "use of z": use_cell(use) if use and arm.run.kappa_bits else "–",
        "gap": f"{arm.gap.mean:.4f}" if arm.gap else "–",
        "valid": number(scores.get("valid_fresh"), 2),
        "pinned": number(scores.get("ratio"), 2),
        "noise": number(scores.get("noise_pinned"), 2),
    }


def use_cell(use: UseOfZ) -> str:
    share = f"{kl_share(use):.0%}"
    if use.divided:
        return f"{share} (differs by seed)"
    return f"{share} (ignored)" if use.ignored else share
