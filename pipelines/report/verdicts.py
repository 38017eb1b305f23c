"""The first screen of a report: what was trained, a table of verdicts and a sentence for each data
set, how far these go, and a picture of each arm's bound beside its baseline's.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from math import ceil, isnan, log10
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.artifacts.results import UNITS
from pipelines.compare.arms import Arm, baselines, grouped
from pipelines.compare.comparison import Comparison, UseOfZ
from pipelines.report.analysis import Analysis
from pipelines.report.benchmarks import Benchmarks
from pipelines.report.blocks import (
    MISSING,
    Block,
    Cell,
    Entries,
    Group,
    Name,
    Picture,
    Table,
    Text,
    escaped,
    explained,
    explanation,
    fold,
    table,
)
from pipelines.report.sections.figure4 import arm_scores
from pipelines.report.style import COLOURS, GREY, Style, add_legend, label_axes
from pipelines.report.wording import (
    count,
    difference_cell,
    estimate,
    listed,
    share,
    signed,
    verdict,
)

MACHINERY = {  # what the bound of κ = 0 says, where z can tell nothing
    "lower": "lower all the same, which z cannot explain",
    "equivalent": "the machinery costs nothing that matters",
    "not decided": "no cost of the machinery shown",
    "higher": "the difference is what the machinery costs",
    "not known": "the error of its cost is not known",
}
GAINS = {
    "more": "more than further blocks give",
    "same": "further blocks gain too",
    "open": "not told apart from further blocks",
}


def facts(analysis: Analysis) -> list[Block]:
    """What was trained, a line for each family; when, and by which code."""
    lines = []
    for family in analysis.families:
        first, sizes = family[0], sorted(arm.parameters for arm in family)
        seeds = sorted({len(arm.runs) for arm in family})
        start = f", from {first.start}" if first.start else ""
        words = (
            f"model {first.run.model}{start}, {ends(f'{each:,}' for each in sizes)} parameters, "
            f"{first.trained_tokens:,} training tokens, {' or '.join(map(str, seeds))} "
            f"{'seed' if seeds == [1] else 'seeds'} per arm"
        )
        lines.append(f"- **{escaped(first.run.data)}:** {escaped(words)}")
    manifests = [run.manifest for run in analysis.runs]
    days = sorted(each.day for each in manifests if each.day)
    commits = dict.fromkeys(short_revision(each.git_revision) for each in manifests)
    when = f"{ends(days)}, " if days else ""
    lines.append(f"- **Training:** {when}commit {escaped(listed(commits))}")
    return [Group('<div class="facts">', [Text("\n".join(lines))], "</div>")]


def ends(ordered: Iterable[str]) -> str:
    """The first and the last of some words, if they differ: 5,152 to 6,404."""
    first, *_, last = [*ordered] * 2
    return first if first == last else f"{first} to {last}"


def short_revision(revision: str) -> str:
    """A git revision as people write it; it may say that files differed from it."""
    commit, plus, changes = revision.partition("+")
    return f"{commit[:8]}{plus}{changes}" or "not recorded"


def findings(analysis: Analysis) -> list[Block]:
    """A table of verdicts for each data set, and a sentence below it."""
    blocks: list[Block] = []
    for data in analysis.by_data:
        blocks += [*verdicts(data, analysis), Text(f"**{data}:** {answer(data, analysis)}")]
    return blocks


def how_far(analysis: Analysis) -> list[Block]:
    """The fold that says how far the verdicts go."""
    words = Text("\n\n".join(caveat(analysis)))
    return [*explained("The first screen"), fold("How far these verdicts go", [words])]


def answer(data: str, analysis: Analysis) -> str:
    """Which Free Transformers have a lower bound than their baseline."""
    compared = analysis.compared_on(data)
    against = [c for c in compared if c.other.plain and not c.arm.baseline]
    if all(arm.baseline for arm in analysis.by_data[data]):
        return "Only baselines were trained: there is no Free Transformer to compare with them."
    if not against:
        return "No baseline of the same model and token budget was trained to compare with."
    better = [c for c in against if c.verdict == "lower"]
    said = "no Free Transformer’s bound is significantly below its baseline’s"
    if better:
        many = len(better) > 1
        bound, its, whose = ("bounds of", "are", "their") if many else ("bound of", "is", "its")
        gains = [f"{gain:.4f}" for gain in sorted(-c.mean for c in better)]
        said = (
            f"the {bound} {listed(c.arm.name for c in better)} {its} significantly below "
            f"{whose} baseline’s, by {ends(gains)} "
            f"{UNITS[against[0].unit]}"
        )
        kinds = {c.arm.name: found[0] for c in better if (found := gain_of(c, compared))}
        if doubted := [name for name, kind in kinds.items() if kind != "more"]:
            said += f"; that z explains the gain of {listed(doubted)} is not shown"
    if alike := [c for c in against if c.qualified_verdict == "equivalent"]:
        those = "bound is" if len(alike) == 1 else "bounds are"
        said += f"; {len(alike)} of {len(against)} {those} equivalent to it ({alike[0].how_far})"
    numbers = sorted({len(arm.runs) for c in against for arm in (c.arm, c.other)})
    if numbers == [1]:
        return f"With one seed per arm, {said}. Another seed may change this."
    few = ", which detect only large gains" if numbers[-1] < 4 else ""
    return f"With {' or '.join(map(str, numbers))} seeds per arm{few}, {said}."


def verdicts(data: str, analysis: Analysis) -> list[Table]:
    """A row for each arm: the verdict against every baseline, which a phone shows, and what it is
    about, the use of z, and reservations.
    """
    arms, compared = analysis.by_data[data], analysis.compared_on(data)
    controls = grouped(
        {c.other.name: c.other for c in compared}.values(), lambda arm: arm.additions
    )
    suites = [b for b in analysis.benchmarks if b.arms[0].run.data == data and b.baseline]
    rows = []
    for arm in arms:
        against = {c.other.additions: c for c in compared if c.arm is arm}
        row: Entries = {"arm": row_name(arm)}
        differences: Entries = {}
        for additions, (first, *others) in sorted(controls.items()):
            c = against.get(additions)
            name = f"its {first.kind}" if others else first.name
            size = "" if others else f" ({first.parameters:,} parameters)"
            row[f"verdict against {name}"] = verdict(c) if c else MISSING
            differences[f"minus {name}{size}"] = difference_cell(c)
        row[f"bound, {UNITS[arm.unit]}"] = estimate(arm.bound())
        row |= differences
        if any(blocks for _, blocks in controls):
            row["gain"] = gain(against.values(), compared)
        if not all(each.baseline for each in arms):
            row["use of z, bits per token"] = use_entry(analysis.uses.get(arm.name))
        if scores := arm_scores(arm):
            row["valid generations"] = Cell(f"{scores['valid_fresh']:.0%}")
        if arms[0].first.evaluation.answers_right:
            right = arm.mean_of(lambda run: run.evaluation.answers_right)
            row["right answers"] = estimate(right)
        if suites:
            words = ", ".join(on_benchmarks(suites, arm))
            row["benchmarks against the baseline"] = words or MISSING
        row["reservations"] = "; ".join(reservations(arm, against.values())) or MISSING
        rows.append(row)
    return table(rows)


def row_name(arm: Arm) -> Name:
    """The arm's name, with a tag if its latent collapsed."""
    return Name(arm.name, tag=arm.collapse)


def find_comparison(comparisons: list[Comparison], arm: Arm, plain: bool) -> Comparison | None:
    """An arm's comparison with the plain baseline, or with the larger one: of several, the one with
    most blocks.
    """
    of_arm = [c for c in comparisons if c.arm is arm and not c.other.run.random_prefix]
    matching = [c for c in of_arm if c.other.plain == plain]
    return matching[-1] if matching else None


def gain_of(comparison: Comparison, comparisons: list[Comparison]) -> tuple[str, Comparison] | None:
    """Whether a Free Transformer's gain on the plain baseline is `more` than further blocks give,
    the `same`, or `open`, and its comparison with the baseline that has them; None without a gain
    or without such a baseline.
    """
    matched = find_comparison(comparisons, comparison.arm, plain=False)
    gain = not comparison.arm.baseline and comparison.other.plain and comparison.verdict == "lower"
    if not gain or not matched:
        return None
    if matched.verdict == "lower":
        return "more", matched
    control = find_comparison(comparisons, matched.other, plain=True)
    return ("same" if control and control.verdict == "lower" else "open"), matched


def gain(against: Collection[Comparison], compared: list[Comparison]) -> str | Cell:
    """Compare a gain with a larger baseline's. If that baseline has fewer parameters than the arm,
    it cannot show that parameters explain the gain.
    """
    for kind, matched in filter(None, (gain_of(c, compared) for c in against)):
        fewer = matched.other.parameters < matched.arm.parameters
        return GAINS[kind] + (", which add fewer parameters" if fewer and kind == "more" else "")
    return MISSING


def use_entry(use: UseOfZ | None) -> str | Cell:
    """What the encoder's z is worth to the decoder, and whether that is negligible."""
    if use is None:
        return MISSING
    if parts := use.divided:
        using, ignoring = (
            ", ".join(f"{run.name} {estimate(run.figures('bits_per_token').use)}" for run in runs)
            for runs in parts
        )
        return f"differs between seeds, so that no mean describes them: {using} against {ignoring}"
    notes = [f"KL {use.kl.mean:.4f}"]
    if use.ignored:
        notes.append("z is ignored")
    return replace(estimate(use.use), notes=tuple(notes))


def reservations(arm: Arm, against: Collection[Comparison]) -> list[str]:
    """What a reader of the arm's verdicts should know."""
    notes = []
    if arm.collapsed:
        found, runs = len(arm.collapsed), len(arm.runs)
        some = f": {share(found, runs, 'run')}" if runs > 1 else ""
        notes.append(f"latent collapsed{some} (seed {listed(map(str, arm.collapsed))})")
    bound, loose = arm.figures().filtering, arm.looseness()
    if bound and bound.converged is False:
        # half a variance says nothing here, so no distance is named
        notes.append("filter not converged: how far the bound lies above the NLL is not known")
    elif bound and max(loose, bound.monte_carlo or 0) > bound.se / 10:
        notes.append(
            f"bound not tight: it may lie {loose:.4f} above the NLL (error over documents: "
            f"{bound.se:.4f})"
        )
    if not arm.baseline and not against:
        notes.append("no baseline of the same model and token budget")
    if arm.run.kappa_bits == 0:
        notes += [f"κ = 0: {MACHINERY[c.verdict]}" for c in against if c.other.plain]
    return notes


def on_benchmarks(suites: list[Benchmarks], arm: Arm) -> list[str]:
    """On how many benchmarks the arm differs from the plain baseline, and on which."""
    tasks: dict[str, list[str]] = {
        word: [] for word in ("better", "worse", "not decided", "not known")
    }
    for suite in suites:
        for task in suite.tasks:
            score = suite.final[task.key].get(arm.name)
            if score and score.verdict:
                tasks[score.verdict].append(task.name)
    counts = []
    for word, names in tasks.items():
        if names:
            which = f" ({listed(names)})" if word in ("better", "worse") else ""
            counts.append(f"{word} on {len(names)}{which}")
    if counts:
        counts.append(f"of {sum(map(len, tasks.values()))}")
    return counts


def caveat(analysis: Analysis) -> list[str]:
    """How far the verdicts go, in paragraphs."""
    said = [*explanation("Errors")]
    if any(len(arm.runs) > 1 for arm in analysis.arms):
        said += explanation("Several seeds")
    if number := len(analysis.tested):
        said.append(
            f"{count(number, 'comparison')} {'was' if number == 1 else 'were'} made. Between equal "
            "arms, about one comparison in twenty reports a difference. A star ★ marks differences "
            "that count beside so many others: about one in twenty of them is false, at most."
        )
    if any(not arm.baseline for arm in analysis.arms):
        said += explanation("Looseness")
    return said


VERDICT_COLOURS = {"lower": COLOURS[1], "higher": COLOURS[2], "equivalent": COLOURS[3]}
MAX_THRESHOLDS = 100  # that a linear axis reaches
PAPER: Style = {"fc": "white", "ec": "none", "pad": 0.5}  # no line crosses words
BOUND, BAR, SEED = (
    "NLL of a baseline, filtering bound of a Free Transformer",
    "threshold: bounds differ if this bar does not reach 0",
    "a seed",
)
LEGEND: dict[str, Style] = {
    BOUND: {"color": GREY, "marker": "D", "ms": 7, "ls": ""},
    BAR: {"color": GREY, "lw": 1.6, "marker": "|", "ms": 7},
    SEED: {"color": GREY, "marker": "o", "ms": 4.5, "mfc": "white", "ls": ""},
}


@dataclass(frozen=True)
class Layout:
    """Lengths of the headline picture, in inches, so that its letters are readable as it is shown:
    85 pixels an inch.
    """

    width: float
    row: float  # height of an arm
    around: float  # height of a panel's title and axis
    title_characters: int  # in a line
    beside: bool  # whether names and verdicts stand beside the bars, or above them


WIDE, NARROW = Layout(9.3, 0.36, 1.16, 80, beside=True), Layout(4.2, 0.62, 1.5, 44, beside=False)


def headline(analysis: Analysis) -> list[Block]:
    """Each arm's bound minus its baseline's, a panel for each family that has both, wide and
    narrow; nothing if there is none.
    """
    panels = []
    for family in analysis.families:
        found = [find_comparison(analysis.comparisons, arm, plain=True) for arm in family]
        if compared := [comparison for comparison in found if comparison]:
            panels.append((analysis.family_name(family), baselines(family)[0], compared))
    if not panels:
        return []
    alt = "Each arm’s held-out bound minus its baseline’s; lower is better"
    wide, narrow = (draw_panels(panels, layout) for layout in (WIDE, NARROW))
    return [Picture("headline", wide, alt, narrow)]


def draw_panels(panels: list[tuple[str, Arm, list[Comparison]]], layout: Layout) -> Figure:
    """Draw families of a name, a baseline and the comparisons with it."""
    heights = [layout.row * (len(compared) + 1) + layout.around for *_, compared in panels]
    figure = Figure(figsize=(layout.width, sum(heights) + 0.3))
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    seeds = 0
    for axes, (name, baseline, compared) in zip(grid, panels, strict=True):
        draw_family(axes, name, baseline, compared, layout)
        seeds = max(seeds, *(len(arm.runs) for c in compared for arm in (c.arm, c.other)))
    looks = {label: look for label, look in LEGEND.items() if seeds > 1 or label != SEED}
    add_legend(figure, looks, 2 if layout.beside else 1)
    return figure


def draw_family(
    axes: Axes, name: str, baseline: Arm, comparisons: list[Comparison], layout: Layout
) -> None:
    """Draw the baseline on top, at 0; bounds differ if their bar does not reach 0."""
    unit, zero = UNITS[comparisons[0].unit], baseline.bound().mean
    draw_arm(axes, 0, baseline, zero, COLOURS[0])
    axes.axvline(0, lw=1.2, color=COLOURS[0])
    names, said = [label(baseline)], [("", COLOURS[0])]
    for row, c in enumerate(comparisons, start=1):
        colour = VERDICT_COLOURS[c.verdict] if c.counts else GREY
        draw_arm(axes, row, c.arm, zero, colour, c.threshold)
        names.append(label(c.arm))
        word = replace(verdict(c), counts=False)  # which Markdown would write bold
        said.append((f"{signed(c.mean)}{c.convergence}  {word}", colour))
    rows, across = range(len(names)), axes.get_yaxis_transform()
    for row, name_of_arm, (words, colour) in zip(rows, names, said, strict=True):
        place: Style = {"color": colour, "fontsize": 10, "transform": across, "bbox": PAPER}
        if layout.beside:
            axes.text(1.015, row, words, va="center", **place)
        else:
            axes.text(0, row - 0.22, f"{name_of_arm}\n{words}".strip(), **place)
    axes.set_yticks(rows, names if layout.beside else [""] * len(names))
    title = f"{name}: held-out bound minus that of {baseline.name} ({zero:.4f} {unit})"
    scale = ""
    if not layout.beside:
        axes.locator_params("x", nbins=5)
    thresholds = [c.threshold for c in comparisons if c.threshold > 0]
    furthest = max(abs(c.mean) for c in comparisons)
    if len(thresholds) == len(comparisons) and furthest >= MAX_THRESHOLDS * min(thresholds):
        scale = " (logarithmic beyond the innermost ticks)"
        axes.set_xscale("symlog", linthresh=10 ** ceil(log10(min(thresholds))))
        axes.xaxis.set_major_formatter("{x:g}")
    below = fill(f"← lower is better; {unit}{scale}", layout.title_characters)
    label_axes(axes, fill(title, layout.title_characters), below, "")
    axes.set_ylim(len(names) - 0.4, -0.6 if layout.beside else -0.7)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.08)


def draw_arm(
    axes: Axes, row: int, arm: Arm, zero: float, colour: str, threshold: float | None = None
) -> None:
    """Draw the mean, its bar and the seeds."""
    known = threshold is None or not isnan(threshold)
    axes.errorbar(
        arm.bound().mean - zero,
        row,
        xerr=threshold if known else None,
        fmt="D",
        ms=7,
        lw=1.6,
        capsize=3,
        color=colour,
        mfc=colour if known else "white",
        zorder=3,
    )
    if len(arm.runs) > 1:
        seeds = [bound - zero for bound in arm.bounds()]
        axes.plot(seeds, [row] * len(seeds), "o", ms=4.5, color=colour, mfc="white", zorder=4)


def label(arm: Arm) -> str:
    kind = arm.kind.removeprefix("baseline").strip()
    what = kind if arm.baseline else f"κ = {arm.first.kappa}"
    named = f"{arm.name} ({what})" if what else arm.name
    return f"{named}, {arm.collapse}" if arm.collapse else named
