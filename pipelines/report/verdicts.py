"""What was found, in words: every sentence is made from the figures."""

from collections import defaultdict
from itertools import pairwise

from pipelines.artifacts.results import UNITS
from pipelines.compare.arms import Arm, families
from pipelines.compare.comparison import Comparison
from pipelines.compare.use_of_z import required, uses_of_z
from pipelines.report.analysis import Analysis
from pipelines.report.benchmarks.table import Benchmarks
from pipelines.report.wording import count, in_words, listed, million

VERDICTS = {
    "lower": "Lower bound than {}",
    "no difference": "No difference measured from {}",
    "higher": "Bound above {}, so no gain shown",
    "not known": "No difference claimed from {}, since errors are not known",
}


def introduction(analysis: Analysis) -> str:
    """What was compared, and by what."""
    parts = [f"{arms_in_words(arms)} on {data}, {budget_in_words(arms)}"
             for data, arms in analysis.by_data.items()]  # fmt: skip
    return (
        f"{'; '.join(parts)}. Arms are compared by an upper bound on the negative log-likelihood "
        "of held-out documents: exact for a baseline, for a Free Transformer by a particle filter "
        "or, with one z per sequence, by a sum over its values or by importance sampling. "
        "Lower is better."
    )


def arms_in_words(arms: list[Arm]) -> str:
    """1 baseline and 2 Free Transformers (κ = 1/8, 1 bits per token)."""
    plain = [arm for arm in arms if arm.plain]
    larger = [arm for arm in arms if arm.baseline and not arm.plain]
    free = [arm for arm in arms if not arm.baseline]
    kinds = [count(len(plain), "baseline")] if plain else []
    if larger:
        blocks = " or ".join(dict.fromkeys(arm.kind.partition("+ ")[2] for arm in larger))
        kinds.append(f"{count(len(larger), 'baseline')} with {blocks} more")
    if free:
        kappas = ", ".join(dict.fromkeys(arm.first.kappa for arm in free))
        kinds.append(f"{count(len(free), 'Free Transformer')} (κ = {kappas} bits per token)")
    return listed(kinds)


def budget_in_words(arms: list[Arm]) -> str:
    tokens = " or ".join(million(tokens) for tokens in sorted({a.trained_tokens for a in arms}))
    numbers = sorted({len(arm.runs) for arm in arms})
    seeds = f", {' or '.join(map(str, numbers))} seeds each" if numbers != [1] else ""
    return f"{tokens} training tokens each{seeds}"


def findings(analysis: Analysis) -> dict[str, list[str]]:
    """What was found on each data set, one sentence an entry, from the bounds alone."""
    return {data: findings_on(data, analysis) for data in analysis.by_data}


def findings_on(data: str, analysis: Analysis) -> list[str]:
    arms, compared = analysis.by_data[data], analysis.compared_on(data)
    on_suites = [b for b in analysis.benchmarks if b.arms[0].run.data == data]
    return [
        *verdicts(compared),
        *attributions(compared),
        *machinery(compared),
        *(line for family in families(arms) for line in collapse_at_large_kappa(family, compared)),
        *missing_partners(arms, compared),
        *ignored(arms),
        *divided(arms),
        *loose(arms),
        *collapses(arms),
        *(sentence for family in on_suites for sentence in on_benchmarks(family)),
    ]


def verdicts(comparisons: list[Comparison]) -> list[str]:
    groups: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for comparison in sorted(comparisons, key=lambda c: c.other.run.extra_blocks):
        groups[comparison.other.name, comparison.verdict].append(comparison)
    sentences = []
    for (name, verdict), group in groups.items():
        other, unit = group[0].other, group[0].unit
        against = f"{name} ({other.bound(unit)} {UNITS[unit]})"
        each = ", ".join(f"{c.arm.name} ({in_words(c)})" for c in group)
        sentences.append(f"{VERDICTS[verdict].format(against)}: {each}.")
    return sentences


def find(comparisons: list[Comparison], arm: Arm, plain: bool) -> Comparison | None:
    """The comparison of an arm with the plain baseline, or with the one of most blocks."""
    matching = [c for c in comparisons if c.arm is arm and c.other.plain == plain]
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


def attributions(comparisons: list[Comparison]) -> list[str]:
    """Whether what Free Transformers gain is more than further blocks give."""
    groups: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for comparison in comparisons:
        if gain := gain_of(comparison, comparisons):
            kind, matched = gain
            groups[matched.other.name, kind].append(matched)
    return [attribution(group, kind) for (_, kind), group in groups.items()]


def attribution(group: list[Comparison], kind: str) -> str:
    """Of Free Transformers of one model against a baseline with further blocks."""
    free, control = group[0].arm, group[0].other
    blocks = further(control.run.extra_blocks)
    matched = control.parameters >= free.parameters
    give = f"{blocks} {'gives' if control.run.extra_blocks == 1 else 'give'}"
    more = f"{blocks} or as many parameters give" if matched else give
    name = f"{control.name} ({control.parameters:,} parameters against {free.parameters:,})"
    words = {
        "more": f"is more than {more}: {name} has no latent and is above it",
        "same": f"is one that {name} has too, with {blocks} and no latent: it is not shown to be "
        "due to z",
        "open": f"is not told apart from {name}, which has {blocks} and no latent",
    }
    return f"The gain of {listed(c.arm.name for c in group)} {words[kind]}."


def further(blocks: int) -> str:
    return "one further block" if blocks == 1 else f"{blocks} further blocks"


def machinery(comparisons: list[Comparison]) -> list[str]:
    """The cost of the latent at κ = 0, where every bit of information is paid for."""
    words = {
        "lower": "and is lower all the same, which z cannot explain",
        "no difference": "and no cost of the machinery was measured",
        "higher": "and this is what the machinery costs",
        "not known": "but its error is not known",
    }
    return [
        f"{c.arm.name} pays for every bit of information in z (κ = 0). Its bound differs from that "
        f"of {c.other.name} by {in_words(c)} {UNITS[c.unit]}, {words[c.verdict]}."
        for c in comparisons
        if c.arm.run.kappa_bits == 0 and c.other.plain
    ]


def collapse_at_large_kappa(family: list[Arm], comparisons: list[Comparison]) -> list[str]:
    """Whether more bits make z a copy of the text: § 4.4 of the paper, at 4 bits.

    Reconstruction gets ever better there, by a z that is used, while the bound gets worse.
    """
    free = sorted((arm for arm in family if arm.preset_design), key=kappa_of)
    steps = {kappa_of(arm): arm for arm in free}  # of arms of one κ, the last
    plain = {k: c for k, arm in steps.items() if (c := find(comparisons, arm, plain=True))}
    if len(steps) < 2 or len(plain) < len(steps):
        return []
    first, *_, last = steps.values()
    ce = [required(arm.figures().ce).mean for arm in steps.values()]
    above = [k for k, c in plain.items() if c.worse]
    onset = [k for k in steps if all(later in above for later in steps if later >= k)]
    baseline = next(iter(plain.values())).other.name
    worse = f"the arms are worse than {baseline}, by more than their bounds may be loose"
    if onset:
        bound = f"from κ = {steps[onset[0]].first.kappa} on {worse}"
    elif above:
        values = listed(steps[k].first.kappa for k in above)
        bound = f"at κ = {values} {worse}, but this is not shown at the largest κ"
    else:
        bound = (
            f"at no κ is an arm shown to be worse than {baseline}, by more than its bound may be "
            "loose"
        )
    (use,) = uses_of_z([last])
    if use.ignored:
        verdict = f"not shown, as z is ignored at κ = {last.first.kappa}"
    else:
        verdict = "shown" if onset and ce[-1] < ce[0] else "not shown"
    return [
        f"From κ = {first.first.kappa} to {last.first.kappa}, reconstruction cross-entropy (no "
        f"language-model loss) {trend(ce)}, and {bound}: the collapse of the paper’s § 4.4 at "
        f"large κ is {verdict}."
    ]


def kappa_of(arm: Arm) -> float:
    assert arm.run.kappa_bits is not None, f"{arm.name} is a baseline"
    return arm.run.kappa_bits


def trend(values: list[float]) -> str:
    """Whether figures rise or fall from first to last, and at every step."""
    if values[-1] == values[0]:
        return "ends where it began"
    falls = values[-1] < values[0]
    steady = all((later < earlier) == falls for earlier, later in pairwise(values))
    return ("falls" if falls else "rises") + ("" if steady else ", though not at every step")


def divided(arms: list[Arm]) -> list[str]:
    """Where some seeds of an arm use z and others ignore it."""
    sentences = []
    for use in uses_of_z(arms):
        if not (parts := use.divided):
            continue
        using, ignoring = (
            ", ".join(f"{run.name} ({run.figures('bits_per_token').use})" for run in runs)
            for runs in parts
        )
        sentences.append(
            f"Seeds of {use.arm.name} differ in whether z is used: means over them describe none. "
            f"Use of z, bits per token: {using} against {ignoring}."
        )
    return sentences


def ignored(arms: list[Arm]) -> list[str]:
    """Where the z that the KL was paid for is worth nothing to the decoder."""
    each = [f"{use.arm.name} ({use.use} of a KL of {use.kl.mean:.4f})"
            for use in uses_of_z(arms) if use.ignored]  # fmt: skip
    if not each:
        return []
    return [
        "z is ignored: the encoder’s z is worth next to nothing to the decoder beyond what the "
        f"text so far says. Use of z, bits per token: {', '.join(each)}."
    ]


def loose(arms: list[Arm]) -> list[str]:
    """Where the filter is no tight bound yet."""
    each = [
        f"{arm.name} (about {arm.looseness():.4f}, error over documents {bound.se:.4f})"
        for arm in arms
        if (bound := arm.figures().filtering)
        and max(arm.looseness(), bound.monte_carlo or 0) > bound.se / 10
    ]
    if not each:
        return []
    return [
        "The filtering bound is not tight, by more than a tenth of its error over documents: the "
        f"true NLL lies further below for {', '.join(each)}. How far is said by half the variance "
        "of a filter’s log estimate, roughly, and too much where it is large; or by another bound "
        "of the arm that is lower. More particles "
        "(evaluation.particles) lower it, and another proposal of z (evaluation.proposal; not with "
        "one z per sequence) may."
    ]


def missing_partners(arms: list[Arm], comparisons: list[Comparison]) -> list[str]:
    """What could not be compared for want of a partner."""
    compared = {c.arm.name for c in comparisons}
    alone = [arm.name for arm in arms if not arm.baseline and arm.name not in compared]
    if alone:
        names = ", ".join(alone)
        return [f"No baseline of the same model and token budget to compare with: {names}."]
    if all(arm.baseline for arm in arms):
        return ["No Free Transformer to compare with the baseline."]
    return []


def collapses(arms: list[Arm]) -> list[str]:
    rule = "KL under a tenth of κ throughout the last third of training"
    names = ", ".join(
        arm.name
        if len(arm.collapsed) == len(arm.runs)
        else f"{arm.name} (seed {listed(map(str, arm.collapsed))})"
        for arm in arms
        if arm.collapsed
    )
    return [f"The latent collapsed ({rule}): {names}."] if names else []


def on_benchmarks(benchmarks: Benchmarks) -> list[str]:
    """On how many each arm differs from the plain baseline, and on which."""
    each = [
        f"{arm.name}: {', '.join(parts)}, of {sum(map(len, tasks.values()))}"
        for arm in benchmarks.arms
        if (parts := verdict_counts(tasks := tasks_by_verdict(benchmarks, arm)))
    ]
    if not each or not benchmarks.baseline:
        return []
    return [f"Benchmarks, set against {benchmarks.baseline.name}: {'; '.join(each)}."]


def tasks_by_verdict(benchmarks: Benchmarks, arm: Arm) -> dict[str, list[str]]:
    tasks: dict[str, list[str]] = defaultdict(list)
    for task in benchmarks.tasks:
        score = benchmarks.final[task.key].get(arm.name)
        if score and score.verdict:
            tasks[score.verdict].append(task.name)
    return tasks


def verdict_counts(tasks: dict[str, list[str]]) -> list[str]:
    counts = [f"{verdict} on {len(tasks[verdict])} ({listed(tasks[verdict])})"
              for verdict in ("better", "worse") if verdict in tasks]  # fmt: skip
    return counts + [f"{verdict} on {len(tasks[verdict])}"
                     for verdict in ("no difference", "not known") if verdict in tasks]  # fmt: skip
