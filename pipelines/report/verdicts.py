"""The findings: a table of verdicts and a sentence for each data set."""

from collections.abc import Collection

from pipelines.artifacts.results import UNITS
from pipelines.compare.arms import Arm, grouped
from pipelines.compare.comparison import Comparison
from pipelines.compare.use_of_z import UseOfZ
from pipelines.report.analysis import Analysis
from pipelines.report.benchmarks.table import Benchmarks
from pipelines.report.blocks import Block, Table, Text, fold, table
from pipelines.report.explanations import explained, paragraphs
from pipelines.report.sections.figure4 import arm_scores
from pipelines.report.wording import count, estimate, in_words, listed, verdict

MACHINERY = {  # what the bound of κ = 0 says, where z can tell nothing
    "lower": "lower all the same, which z cannot explain",
    "no difference": "no cost of the machinery measured",
    "higher": "the difference is what the machinery costs",
    "not known": "the error of its cost is not known",
}
GAINS = {
    "more": "more than further blocks give",
    "same": "further blocks gain too",
    "open": "not told apart from further blocks",
}


def findings(analysis: Analysis) -> list[Block]:
    """A table of verdicts for each data set, and a sentence below it."""
    blocks: list[Block] = []
    for data in analysis.by_data:
        blocks += [*verdicts(data, analysis), Text(f"**{data}:** {answer(data, analysis)}")]
    return blocks


def how_far(analysis: Analysis) -> list[Block]:
    """The fold that says how far the verdicts go."""
    words = Text("\n\n".join(caveat(analysis)))
    return [explained("The first screen"), fold("How far these verdicts go", [words])]


def answer(data: str, analysis: Analysis) -> str:
    """Which Free Transformers have a lower bound than their baseline."""
    compared = analysis.compared_on(data)
    against = [c for c in compared if c.other.plain and not c.arm.baseline]
    if all(arm.baseline for arm in analysis.by_data[data]):
        return "Only baselines were trained: there is no Free Transformer to compare with them."
    if not against:
        return "No baseline of the same model and token budget was trained to compare with."
    better = [c for c in against if c.verdict == "lower"]
    said = "no Free Transformer has a significantly lower bound than its baseline"
    if better:
        has, its = ("has", "its") if len(better) == 1 else ("have", "their")
        gains = [f"{gain:.4f}" for gain in sorted(-c.mean for c in better)]
        said = (
            f"{listed(c.arm.name for c in better)} {has} a significantly lower bound than {its} "
            f"baseline, by {' to '.join(dict.fromkeys((gains[0], gains[-1])))} "
            f"{UNITS[against[0].unit]}"
        )
        kinds = {c.arm.name: found[0] for c in better if (found := gain_of(c, compared))}
        if doubted := [name for name, kind in kinds.items() if kind != "more"]:
            said += f"; that z explains the gain of {listed(doubted)} is not shown"
    numbers = sorted({len(arm.runs) for c in against for arm in (c.arm, c.other)})
    if numbers == [1]:
        return f"With one seed per arm, {said}. Another seed may change this."
    few = ", which detect only large gains" if numbers[-1] < 4 else ""
    return f"With {' or '.join(map(str, numbers))} seeds per arm{few}, {said}."


def verdicts(data: str, analysis: Analysis) -> list[Table]:
    """A row for each arm: its difference from every baseline, the use of z, and reservations."""
    arms, compared = analysis.by_data[data], analysis.compared_on(data)
    controls = grouped(
        {c.other.name: c.other for c in compared}.values(), lambda arm: arm.additions
    )
    suites = [b for b in analysis.benchmarks if b.arms[0].run.data == data and b.baseline]
    rows = []
    for arm in arms:
        against = {c.other.additions: c for c in compared if c.arm is arm}
        row = [("arm", name(arm)), (f"bound, {UNITS[arm.unit]}", estimate(arm.bound()))]
        for additions, (first, *others) in sorted(controls.items()):
            c = against.get(additions)
            alone = f"{first.name} ({first.parameters:,} parameters)"
            head = f"from its {first.kind}" if others else f"from {alone}"
            row += [(head, in_words(c)), ("verdict", verdict(c))]
        if any(blocks for _, blocks in controls):
            row.append(("gain", gain(against.values(), compared)))
        if not all(each.baseline for each in arms):
            row.append(("use of z, bits per token", use_in_words(analysis.uses.get(arm.name))))
        if scores := arm_scores(arm):
            row.append(("valid generations", f"{scores['valid_fresh']:.0%}"))
        if arms[0].first.evaluation.answers_right:
            right = arm.mean_of(lambda run: run.evaluation.answers_right)
            row.append(("right answers", estimate(right)))
        if suites:
            words = ", ".join(on_benchmarks(suites, arm))
            row.append(("benchmarks against the baseline", words or "–"))
        row.append(("reservations", "; ".join(reservations(arm, against.values())) or "–"))
        rows.append(row)
    return table(rows)


def name(arm: Arm) -> str:
    """The arm's name, with a mark if its latent collapsed."""
    return arm.name + (f" **({arm.collapse})**" if arm.collapsed else "")


def find(comparisons: list[Comparison], arm: Arm, plain: bool) -> Comparison | None:
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
    matched = find(comparisons, comparison.arm, plain=False)
    gain = not comparison.arm.baseline and comparison.other.plain and comparison.verdict == "lower"
    if not gain or not matched:
        return None
    if matched.verdict == "lower":
        return "more", matched
    control = find(comparisons, matched.other, plain=True)
    return ("same" if control and control.verdict == "lower" else "open"), matched


def gain(against: Collection[Comparison], compared: list[Comparison]) -> str:
    """Compare a gain with a larger baseline's. If that baseline has fewer parameters than the arm,
    it cannot show that parameters explain the gain.
    """
    for kind, matched in filter(None, (gain_of(c, compared) for c in against)):
        fewer = matched.other.parameters < matched.arm.parameters
        return GAINS[kind] + (" (with fewer parameters)" if fewer and kind == "more" else "")
    return "–"


def use_in_words(use: UseOfZ | None) -> str:
    """What the encoder's z is worth to the decoder, and whether that is negligible."""
    if use is None:
        return "–"
    if parts := use.divided:
        using, ignoring = (
            ", ".join(f"{run.name} {estimate(run.figures('bits_per_token').use)}" for run in runs)
            for runs in parts
        )
        return f"differs between seeds, so that no mean describes them: {using} against {ignoring}"
    return f"{use.use} of a KL of {use.kl.mean:.4f}" + ": ignored" * use.ignored


def reservations(arm: Arm, against: Collection[Comparison]) -> list[str]:
    """What a reader of the arm's verdicts should know."""
    notes = []
    if arm.collapsed:
        notes.append(f"latent collapsed (seed {listed(map(str, arm.collapsed))})")
    bound, loose = arm.figures().filtering, arm.looseness()
    if bound and max(loose, bound.monte_carlo or 0) > bound.se / 10:
        notes.append(
            f"bound not tight: about {loose:.4f} above the NLL, where the error over documents is "
            f"{bound.se:.4f}"
        )
    if not arm.baseline and not against:
        notes.append("no baseline of the same model and token budget")
    if arm.run.kappa_bits == 0:
        notes += [f"κ = 0: {MACHINERY[c.verdict]}" for c in against if c.other.plain]
    return notes


def on_benchmarks(suites: list[Benchmarks], arm: Arm) -> list[str]:
    """On how many benchmarks the arm differs from the plain baseline, and on which."""
    tasks: dict[str, list[str]] = {
        word: [] for word in ("better", "worse", "no difference", "not known")
    }
    for suite in suites:
        for task in suite.tasks:
            score = suite.final[task.key].get(arm.name)
            if score and score.verdict:
                tasks[score.verdict].append(task.name)
    counts = [
        f"{word} on {len(names)}" + f" ({listed(names)})" * (word in ("better", "worse"))
        for word, names in tasks.items()
        if names
    ]
    return counts and [*counts, f"of {sum(map(len, tasks.values()))}"]


def caveat(analysis: Analysis) -> list[str]:
    """How far the verdicts go, in paragraphs."""
    said = [paragraphs()["Errors"]]
    said += [paragraphs()["Several seeds"]] * any(len(arm.runs) > 1 for arm in analysis.arms)
    if number := analysis.comparisons_made:
        said.append(
            f"{count(number, 'comparison')} {'was' if number == 1 else 'were'} made, at 5 % each: "
            "about one comparison in twenty between equal arms reports a difference."
        )
    return said + [paragraphs()["Looseness"]] * any(not arm.baseline for arm in analysis.arms)
