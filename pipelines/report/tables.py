"""The tables of a report for programs and for the terminal: arms.csv, runs.csv, curves.csv and
summary.txt.
"""

from math import isnan
from pathlib import Path
from typing import Any

from ftmodel.designs.hinge import LN2
from pipelines.artifacts.result_files import flat
from pipelines.artifacts.results import UNITS, Estimate
from pipelines.artifacts.run_results import RunResults
from pipelines.common.console import aligned
from pipelines.compare.arms import Arm, last_third, over_seeds
from pipelines.compare.use_of_z import UseOfZ
from pipelines.config.arms import recipe
from pipelines.report.analysis import Analysis
from pipelines.report.benchmarks.table import Benchmarks, of_family, suite_of
from pipelines.report.sections.figure4 import arm_scores
from pipelines.report.wording import number, signed

MAX_ARMS_PER_LINE = 8  # the table has more
WIDTH = 110  # characters a line
MARKS = {"better": " >", "worse": " <"}


def curve_rows(runs: list[RunResults]) -> list[dict[str, Any]]:
    """Training bounds of all runs, one row a point, for `dvc plots`."""
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
    row |= {column_name(path): value for path, value in flat(run.evaluation).items()}
    row |= {} if (late := last_third(run)) is None else {"last_third": late}
    for task, result in (run.suite.tasks if run.suite else {}).items():
        row |= {f"suite_{task}": result.value, f"suite_{task}_se": result.se}
        for key, score in result.sampled_figures(task).items():
            name = f"suite_{key.replace('/', '_')}"
            row |= {name: score.value, f"{name}_se": score.se}
    return row


def latent_cells(run: RunResults) -> dict[str, Any]:
    """H, and in words where a run's design of the latent differs from its preset's."""
    design = " ".join(f"{key}={value}" for key, value in run.run.latent.settings.items())
    return {"latent_bits": run.latent_bits, "latent": design}


def column_name(path: str) -> str:
    """bits_per_token/nll/mean is nll_bits_per_token, bits_per_token/nll/se …_se."""
    first, *names = path.removesuffix("/mean").split("/")
    if first in UNITS:
        figure, *error = names
        return "_".join([figure, first, *error])
    return "_".join([first, *names])


def arm_row(arm: Arm) -> dict[str, Any]:
    """Mean and spread over seeds of everything measured on an arm, at full precision."""
    row = {"arm": arm.name, **recipe(arm.run), **latent_cells(arm.first)}
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
    alone = of_family([arm])
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
    """One line an arm, compared by the first column in bits; below it the scores on a suite."""
    cells = [summary_row(arm) for arm in analysis.arms]
    heads = [head for head in cells[0] if any(row[head] != "–" for row in cells)]
    lines = aligned([heads, *([row[head] for head in heads] for row in cells)])
    notes = {
        "bits/token": "bits: NLL of a baseline, filtering bound of a Free Transformer; ± standard "
        "error over documents",
        "seeds": "seeds: how many, and the standard deviation of the bound over them, bits/byte "
        "for text",
        "gap": "gap: bound − exact entropy, nats/token",
        "pinned": "pinned: spread of the target with pinned z ÷ with fresh z; noise: with pinned z",
    }
    return "\n".join(
        (
            *lines,
            "",
            *(note for head, note in notes.items() if head in heads),
            *summary_lines(analysis.benchmarks),
            "",
            *found(analysis),
            f"The report is in {page}. Next: `make ui` (MLflow){sampling(analysis)}.",
            "",
        )
    )


def summary_lines(families: list[Benchmarks]) -> list[str]:
    """Benchmarks: a table for each family, what was skipped, and what the marks mean."""
    lines = []
    for family in families:
        if family.tasks:
            run, name = family.arms[0].run, suite_of(family.arms[0].first).suite
            lines += ["", f"suite {name} on {run.data} ({run.model}, {run.tokens:,} tokens)"]
            lines += summary_table(family)
        if names := family.skipped:
            lines.append(f"skipped: {', '.join(names)} (why: see the report)")
    if any(family.compared() for family in families):
        lines += ["", "suite: > better, < worse than the plain baseline, beyond errors and seeds"]
    return lines


def summary_table(family: Benchmarks) -> list[str]:
    """A benchmark a line, the arms side by side as far as they fit."""
    names = ["", *(task.name for task in family.tasks)]
    metrics = ["", *(task.metric + " ↓" * (not task.higher_is_better) for task in family.tasks)]
    lines, columns = list[str](), [names, metrics]
    for arm in family.arms:
        scores = [family.final[task.key].get(arm.name) for task in family.tasks]
        cells = [f"{s.value.mean:.3f}{MARKS.get(s.verdict, '')}" if s else "–" for s in scores]
        wider = [*columns, [arm.name, *cells]]
        if len(columns) > 2 and max(map(len, joined(wider))) > WIDTH:
            lines += joined(columns)
            wider = [names, metrics, [arm.name, *cells]]
        columns = wider
    return lines + joined(columns)


def joined(columns: list[list[str]]) -> list[str]:
    return aligned([list(row) for row in zip(*columns, strict=True)])


def found(analysis: Analysis) -> list[str]:
    """A line each on bounds, use of z and generations, if its arms fit on a line."""
    against = [c for c in analysis.comparisons if c.other.plain and not c.arm.baseline]
    uses = [use for use in analysis.uses.values() if use.arm.run.kappa_bits]
    lines = {
        "Bound minus its baseline's": [
            f"{c.arm.name} {c.qualified_verdict} ({signed(c.mean)})" for c in against
        ],
        "Use of z, share of its KL": [
            f"{use.arm.name} {kl_share(use):.0%}"
            + (" (differs by seed)" if use.divided else " (ignored)" * use.ignored)
            for use in uses
        ],
        "Valid generations": [
            f"{arm.name} {scores['valid_fresh']:.0%}"
            for arm in analysis.arms
            if (scores := arm_scores(arm))
        ],
    }
    return [
        f"{what}: {', '.join(each)}"
        for what, each in lines.items()
        if 0 < len(each) <= MAX_ARMS_PER_LINE
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


def summary_row(arm: Arm) -> dict[str, str]:
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
        "gap": f"{arm.gap.mean:.4f}" if arm.gap else "–",
        "valid": number(scores.get("valid_fresh"), 2),
        "pinned": number(scores.get("ratio"), 2),
        "noise": number(scores.get("noise_pinned"), 2),
    }
