"""Held-out bounds: arms side by side, against baselines, and how loose other bounds are."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from pipelines.artifacts.results import UNITS, Figures
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import Comparison
from pipelines.config.schema import AUTO, EvaluationConfig
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import (
    MISSING,
    Block,
    Cell,
    Column,
    Entries,
    Name,
    Table,
    Text,
    heading,
    table,
)
from pipelines.report.sections import titled
from pipelines.report.style import Style, add_legend, dots, label_axes
from pipelines.report.verdicts import row_name
from pipelines.report.wording import difference_cell, estimate, other_error, verdict

PROPOSALS: dict[float | None, str] = {None: "by the default rule", 0: "from the prior"}


@titled("Measurements")
def bounds(analysis: Analysis) -> Sequence[Block]:
    blocks = (data_blocks(data, arms, analysis) for data, arms in analysis.by_data.items())
    return [block for each in blocks for block in each]


def data_blocks(data: str, arms: list[Arm], analysis: Analysis) -> list[Block]:
    """All tables of one data set; the first of its units is the one to compare in."""
    unit, *others = [unit for unit in UNITS if arms[0].first.figures(unit) != Figures()]
    compared, settings = analysis.compared_on(data), analysis.settings
    runs, seeds = [run for arm in arms for run in arm.runs], any(len(arm.runs) > 1 for arm in arms)
    blocks: list[Block] = [
        heading(f"{data}: {UNITS[unit]}"),
        *all_arms(arms, unit, settings),
        *map(Text, how_to_read(arms, unit, seeds, settings)),
    ]
    if compared:
        blocks += [
            heading(f"{data}: differences from the baselines, {UNITS[unit]}"),
            *from_baselines(compared, arms, seeds),
        ]
    for other in others:
        blocks += [heading(f"{data}: {UNITS[other]}"), *all_arms(arms, other, settings)]
    if picked := calibrations(runs):
        blocks += [heading(f"{data}: particles of the filter"), *picked]
    if seeds:
        single = table(
            {
                "run": Name(run.name, "collapsed" if run.evaluation.collapsed else ""),
                "seed": Cell(str(run.run.seed)),
                **figure_cells(run.figures(unit), settings),
            }
            for run in runs
        )
        blocks += [heading(f"{data}: single runs, {UNITS[unit]}"), *single]
    return blocks


def figure_cells(figures: Figures, settings: EvaluationConfig) -> Entries:
    return {
        "NLL (exact)": estimate(figures.nll),
        "filtering bound": estimate(figures.filtering),
        Column("ELBO bound", comparable=False): estimate(figures.elbo),
        Column(f"IWAE-{settings.iwae_samples} bound", comparable=False): estimate(figures.iwae),
        Column("prior-sample bound", comparable=False): estimate(figures.prior),
        Column("KL", comparable=False): estimate(figures.kl),
        Column("reconstruction CE", comparable=False): estimate(figures.ce),
    }


def calibrations(runs: list[RunResults]) -> list[Table]:
    """What was picked for each run, and the bounds on training text that decided it."""
    return table(
        {
            "run": run.name,
            "particles": Cell(str(found.particles)),
            "share of the encoder’s logits": Cell(f"{found.proposal:g}"),
            "converged": "yes" if found.converged else "no",
            "gap on its own text": estimate(run.evaluation.own_text_gap),
            "gain of twice as many": Cell(f"{found.gain:.5f}", notes=(f"error {found.error:.5f}",)),
            "bound of training text by particles": Cell(
                ", ".join(f"{k}: {bound:.4f}" for k, bound in found.curve.items())
            ),
        }
        for run in runs
        if (found := run.evaluation.calibration)
    )


def all_arms(arms: list[Arm], unit: str, settings: EvaluationConfig) -> list[Table]:
    gap = unit == "bits_per_token" and arms[0].gap is not None
    return table(
        {
            "arm": row_name(arm),
            "kind": ", ".join(filter(None, (arm.kind, arm.run.model, arm.warmup))),
            "κ, bits": Cell(arm.first.kappa),
            "H": Cell(str(arm.first.latent_bits)) if arm.first.latent_bits else MISSING,
            "parameters": Cell(f"{arm.parameters:,}"),
            "trained tokens": Cell(f"{arm.trained_tokens:,}"),
            "seeds": Cell(str(len(arm.runs))),
            "scored, tokens/s": Cell(f"{arm.tokens_per_second:,.0f}"),
            **({"gap to exact, nats/token": estimate(arm.gap)} if gap else {}),
            **figure_cells(arm.figures(unit), settings),
        }
        for arm in arms
    )


def how_to_read(arms: list[Arm], unit: str, seeds: bool, settings: EvaluationConfig) -> list[str]:
    first = arms[0].first.evaluation
    error = f"± one standard error over {first.documents:,} held-out documents"
    texts = [f"Means {error}."]
    if seeds:
        texts = [f"Means over seeds {error}; spread: sample standard deviation over seeds."]
    if bounds := [bound for arm in arms if (bound := arm.figures(unit).filtering)]:
        largest = max(bounds, key=lambda bound: bound.monte_carlo or 0)
        converged = [bound for bound in bounds if bound.converged is not False]
        if settings.particles == AUTO:
            what = (
                f"of the mean probability of {settings.filters} filters, whose particles and "
                "proposal were found on training text"
            )
        else:
            chosen = f"with {settings.proposal} of the encoder’s logits"
            what = (
                f"mean of {settings.filters} filters of {settings.particles} particles, z proposed "
                f"{PROPOSALS.get(settings.proposal, chosen)}"
            )
        texts.append(
            f"[Filtering bound](../../docs/measurement/filtering_bound.md): {what}. Its own "
            f"error, over repeated filters, is at most {largest.monte_carlo or 0:.5f} (error over "
            f"documents: {largest.se:.5f})."
        )
        if converged:
            half = max(bound.half_variance or 0.0 for bound in converged)
            texts[-1] += (
                " It lies above the NLL by roughly half the variance of its log estimate, which is "
                f"at most {half:.5f}."
            )
        if len(converged) < len(bounds):
            texts[-1] += (
                " Where the filter has not converged, how far the bound lies above is not known."
            )
    if unit == "bits_per_byte":
        texts.append("Quote bits per byte: tokenizers differ, bytes do not.")
    if exact := first.bits_per_token.exact:
        texts.append(
            f"The process that made these data has {exact} bits per token on the same documents. "
            "On average, no model can do better than the process. Gap: a model’s NLL or filtering "
            "bound minus the process’s NLL, document by document."
        )
    return texts


def from_baselines(comparisons: list[Comparison], arms: list[Arm], seeds: bool) -> list[Table]:
    """A row for each compared arm, with its comparisons with all baselines side by side."""
    controls = [arm for arm in arms if any(c.other is arm for c in comparisons)]
    rows = []
    for arm in arms:
        against = {c.other.name: c for c in comparisons if c.arm is arm}
        if not against:
            continue
        row: Entries = {"arm": arm.name, "parameters": Cell(f"{arm.parameters:,}")}
        for control in controls:
            c, name = against.get(control.name), control.name
            row[f"minus {name} ({control.parameters:,} parameters)"] = difference_cell(c)
            if seeds:
                row[f"other error over seeds, {name}"] = other_error(c)
            row[f"verdict against {name}"] = verdict(c, c.words) if c else MISSING
        rows.append(row)
    return table(rows)


@titled("How loose ELBO and IWAE are")
def iwae(analysis: Analysis) -> Sequence[Block]:
    words = "IWAE-K bound minus the filtering bound"
    return analysis.pictures("samples", words, sample_counts, bound_by_samples)


def sample_counts(arm: Arm) -> list[int]:
    """The numbers of samples K of a Free Transformer."""
    return sorted(arm.first.evaluation.iwae_by_samples or {})


def bound_by_samples(arms: list[Arm], style: Mapping[str, Style]) -> Figure:
    """Plot the IWAE bound minus the filtering bound against the number K of its samples."""
    figure = Figure(figsize=(11, 4.4 + 0.2 * (len(arms) // 4)))
    axes = figure.subplots()
    for arm in arms:
        for run in arm.runs:
            bounds = run.evaluation.iwae_by_samples or {}
            filtering = run.figures("bits_per_token").bound.mean
            above = [bounds[k].mean - filtering for k in sample_counts(arm)]
            axes.plot(sample_counts(arm), above, lw=1.1, **dots(style[arm.name]))
    label_axes(axes, "IWAE-K bound minus the filtering bound", "samples K", "bits per token")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    add_legend(figure, {arm.name: {"lw": 2, **dots(style[arm.name])} for arm in arms}, 4)
    return figure
