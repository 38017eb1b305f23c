"""What was found, in words: every sentence is made from the figures."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from math import isnan

from pipelines.artifacts.results import UNITS
from pipelines.report.arms import Arm, by_data, families
from pipelines.report.benchmarks.table import Benchmarks, benchmarks
from pipelines.report.comparison import Comparison, compare
from pipelines.report.sections.budgets import budget_table

VERDICTS = {
    "lower": "Lower bound than {}",
    "no difference": "No difference measured from {}",
    "higher": "Bound above {}, so no gain shown",
    "not known": "No difference claimed from {}, since errors are not known",
}
NOTES = {
    "Reconstruction cross-entropy": "Its z comes from an encoder that has read the very tokens "
    "being scored. It is not a language-model loss: it can lie far below a baseline's for a model "
    "that is worse. Never compare it between arms.",
    "ELBO and IWAE": "Both are upper bounds on the negative log-likelihood (NLL), so the model is "
    "at least this good. ELBO is reconstruction cross-entropy + KL; IWAE-K weighs K samples of z "
    "and is tighter on average, the more so the larger K. A bound above a baseline's NLL shows no "
    "gain, but does not prove the model worse.",
    "Prior-sample bound": "z is drawn blindly, as in generation. A bound too, but usually a loose "
    "one: of a few random z hardly any suits the text.",
    "KL": "How many bits a token z carries about the text. It is a cost within the bounds, not a "
    "measure of quality.",
    "Standard errors and seeds": "± says how well trained models were measured on held-out "
    "documents. It says nothing of how far training with another seed would move the figure: that "
    "is the spread, the sample standard deviation over seeds. All arms are scored on the same "
    "documents: a difference’s error over documents is that of the differences document by "
    "document. Its error over seeds is that of two means of independent seeds, s √(1/n + 1/m) s "
    "being the spread within the two arms: runs of one seed read the data in the same order, but "
    "are not alike in anything else.",
    "Training curves": "They are taken on training batches while the model changes, and bound by "
    "ELBO. The held-out figures are the ones to quote.",
    "Bits per token and per byte": "Tokens differ between tokenizers, bytes do not. Figures on "
    "different data are not comparable at all.",
    "Parameters": "A Free Transformer has an encoder block and a table of 2^H embeddings on top of "
    "its baseline: the same blocks and token budget, not the same number of parameters. A baseline "
    "with one more block is the control for the block: what it gains too is not due to z. It has "
    "no table and as a rule fewer parameters, so that a gain beyond its own is more than a further "
    "block gives, and not yet more than as many parameters give.",
    "κ = 0": "A Free Transformer that pays for every bit from the first on. It has all the "
    "machinery and as good as no information in z, so it shows what the machinery itself costs.",
}

BUDGETS = (
    "A snapshot is of a training that went on, its learning rate not annealed. Bounds of single "
    "documents are kept for the final budget alone. Elsewhere a difference’s error over documents "
    "is not known, and the verdict is by seeds alone: a difference counts if it exceeds the spread "
    "of either arm and t standard errors over seeds; "
    "without a second seed nothing is claimed. The last third of training is the mean of the "
    "budgets that lie in it, compared between arms that have the same ones there."
)


def signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def million(tokens: int) -> str:
    return f"{tokens:,}" if tokens < 1e6 else f"{tokens / 1e6:.4g} million"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def introduction(arms: list[Arm], iwae_samples: int) -> str:
    """What was compared, and by what."""
    parts = []
    for data, group in by_data(arms).items():
        plain = [arm for arm in group if arm.kind == "baseline"]
        more = [arm for arm in group if arm.baseline and arm.run.extra_blocks]
        free = [arm for arm in group if not arm.baseline]
        kinds = [count(len(plain), "baseline")] if plain else []
        if more:
            blocks = " or ".join(dict.fromkeys(arm.kind.partition("+ ")[2] for arm in more))
            kinds.append(f"{count(len(more), 'baseline')} with {blocks} more")
        if free:
            kappas = ", ".join(dict.fromkeys(arm.first.kappa for arm in free))
            kinds.append(f"{count(len(free), 'Free Transformer')} (κ = {kappas} bits per token)")
        budgets = sorted({arm.trained_tokens for arm in group})
        tokens = " or ".join(million(budget) for budget in budgets)
        numbers = sorted({len(arm.runs) for arm in group})
        seeds = f", {' or '.join(map(str, numbers))} seeds each" if numbers != [1] else ""
        parts.append(f"{listed(kinds)} on {data}, {tokens} training tokens each{seeds}")
    return (
        f"{'; '.join(parts)}. Arms are compared by an upper bound on the negative log-likelihood "
        f"of held-out documents: exact for a baseline, IWAE-{iwae_samples} for a Free Transformer. "
        "Lower is better."
    )


def listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def findings(arms: list[Arm]) -> dict[str, list[str]]:
    """What was found on each data set, one sentence an entry, from the bounds alone."""
    compared = compare(arms)
    found = {}
    for data, group in by_data(arms).items():
        here = [c for c in compared if c.arm.run.data == data]
        found[data] = [
            *verdicts(here),
            *attributions(here),
            *machinery(here),
            *(sentence for family in families(group) for sentence in against_kappa(family, here)),
            *gaps_in_the_design(group, here),
            *tighter_priors(group),
            *collapses(group),
            *(sentence for scored in benchmarks(group) for sentence in on_benchmarks(scored)),
        ]
    return found


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


def in_words(comparison: Comparison) -> str:
    """−0.0123 ± 0.0010, seeds ± 0.0020: standard errors over documents and over seeds."""
    documents, seeds = comparison.documents, comparison.seeds
    known = documents is not None and not isnan(documents)
    return (
        signed(comparison.mean)
        + (f" ± {documents:.4f}" if known else "")
        + ("" if isnan(seeds) else f", seeds ± {seeds:.4f}")
    )


def find(comparisons: list[Comparison], arm: Arm, plain: bool) -> Comparison | None:
    """The comparison of an arm with the plain baseline, or with the one of most blocks."""
    found = [c for c in comparisons if c.arm is arm and (not c.other.run.extra_blocks) == plain]
    return found[-1] if found else None


def attributions(comparisons: list[Comparison]) -> list[str]:
    """Whether what Free Transformers gain is more than further blocks give."""
    groups: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for c in comparisons:
        matched = find(comparisons, c.arm, plain=False)
        if c.arm.baseline or c.other.run.extra_blocks or c.verdict != "lower" or not matched:
            continue
        control = find(comparisons, matched.other, plain=True)
        if matched.verdict == "lower":
            kind = "more"
        else:
            kind = "same" if control and control.verdict == "lower" else "open"
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
    """What a Free Transformer costs that may carry no information."""
    words = {
        "lower": "and is lower all the same, which z cannot explain",
        "no difference": "and no cost of the machinery was measured",
        "higher": "and this is what the machinery costs",
        "not known": "but its error is not known",
    }
    return [
        f"{c.arm.name} may carry no information (κ = 0): {in_words(c)} {UNITS[c.unit]} from "
        f"{c.other.name}, {words[c.verdict]}."
        for c in comparisons
        if c.arm.run.kappa_bits == 0 and not c.other.run.extra_blocks
    ]


def against_kappa(family: list[Arm], comparisons: list[Comparison]) -> list[str]:
    """Whether more bits make z a copy of the text: § 4.4 of the paper, at 4 bits.

    Reconstruction gets ever better there, while the bound and generation from the prior get worse.
    """
    free = sorted((arm for arm in family if not arm.baseline), key=kappa_of)
    steps = {kappa_of(arm): arm for arm in free}  # of arms of one κ, the last
    plain = {k: find(comparisons, arm, plain=True) for k, arm in steps.items()}
    if len(steps) < 2 or not all(plain.values()):
        return []
    first, *_, last = steps.values()
    ce, prior = ([figure_of(arm, key) for arm in steps.values()] for key in ("ce", "prior"))
    above = [k for k, c in plain.items() if c and c.verdict == "higher"]
    onset = [k for k in steps if all(later in above for later in steps if later >= k)]
    baseline = next(c.other.name for c in plain.values() if c)
    if onset:
        bound = f"the bound lies above that of {baseline} from κ = {steps[onset[0]].first.kappa} on"
    elif above:
        places = listed(steps[k].first.kappa for k in above)
        bound = f"the bound lies above that of {baseline} at κ = {places}, but not at the largest κ"
    else:
        bound = f"at no κ does the bound lie above that of {baseline}"
    end = plain[kappa_of(last)]
    assert end is not None
    generated = prior[-1] - end.other.bound(end.unit).mean
    seen = bool(onset) and ce[-1] < ce[0] and prior[-1] > prior[0] and generated > end.threshold
    return [
        f"From κ = {first.first.kappa} to {last.first.kappa}, reconstruction cross-entropy (no "
        f"language-model loss) {trend(ce)}, {bound}, and the prior-sample bound {trend(prior)}, "
        f"in the end {signed(generated)} from {baseline}: the collapse of the paper’s § 4.4 at "
        f"large κ is {'seen' if seen else 'not seen'}."
    ]


def kappa_of(arm: Arm) -> float:
    assert arm.run.kappa_bits is not None, f"{arm.name} is a baseline"
    return arm.run.kappa_bits


def figure_of(arm: Arm, key: str) -> float:
    found = arm.figure(key)
    assert found is not None, f"{arm.name} has no {key}"
    return found.mean


def trend(values: list[float]) -> str:
    """Whether figures rise or fall from first to last, and at every step."""
    if values[-1] == values[0]:
        return "ends where it began"
    falls = values[-1] < values[0]
    steady = all((later < earlier) == falls for earlier, later in pairwise(values))
    return ("falls" if falls else "rises") + ("" if steady else ", though not at every step")


def tighter_priors(arms: list[Arm]) -> list[str]:
    """Where z drawn blindly bounds the NLL better than importance sampling does."""
    each = [
        f"{arm.name} ({figure_of(arm, 'prior'):.4f} against {arm.bound().mean:.4f})"
        for arm in arms
        if not arm.baseline and figure_of(arm, "prior") < arm.bound().mean
    ]
    if not each:
        return []
    return [
        "Prior-sample bound below the IWAE bound, by which arms are compared all the same: "
        f"{', '.join(each)}. There IWAE is loose, and the true NLL at most the former."
    ]


def gaps_in_the_design(arms: list[Arm], comparisons: list[Comparison]) -> list[str]:
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
        arm.name if len(arm.collapsed) == len(arm.runs) else f"{arm.name} (seed {numbers(arm)})"
        for arm in arms
        if arm.collapsed
    )
    return [f"The latent collapsed ({rule}): {names}."] if names else []


def on_benchmarks(found: Benchmarks) -> list[str]:
    """On how many each arm differs from the plain baseline, and on which."""
    said = []
    for arm in found.arms:
        verdicts: dict[str, list[str]] = defaultdict(list)
        for task in found.tasks:
            score = found.final[task.key].get(arm.name)
            if score and score.verdict:
                verdicts[score.verdict].append(task.name)
        compared = sum(map(len, verdicts.values()))
        parts = [f"{verdict} on {len(verdicts[verdict])} ({listed(verdicts[verdict])})"
                 for verdict in ("better", "worse") if verdicts[verdict]]  # fmt: skip
        parts += [f"{verdict} on {len(verdicts[verdict])}"
                  for verdict in ("no difference", "not known") if verdicts[verdict]]  # fmt: skip
        if compared:
            said.append(f"{arm.name}: {', '.join(parts)}, of {compared}")
    if not said or not found.baseline:
        return []
    return [f"Benchmarks, set against {found.baseline.name}: {'; '.join(said)}."]


def numbers(arm: Arm) -> str:
    return listed(map(str, arm.collapsed))


def caveat(arms: list[Arm]) -> str:
    """How far the findings go."""
    groups = by_data(arms)
    alone = [d for d, group in groups.items() if all(len(arm.runs) == 1 for arm in group)]
    sentences = [
        "± is one standard error over held-out documents; a difference within two of them is "
        "reported as none."
    ]
    if alone:
        sentences.append(
            f"One seed per arm on {listed(alone)}: how far another seed would move these "
            "figures is not known, so nothing is claimed beyond these very runs."
        )
    if len(alone) < len(groups):
        sentences.append(
            "Where there are seeds, a difference also counts as none unless it exceeds the spread "
            "over seeds of either arm and t standard errors over seeds (Student’s t-test for two "
            "samples, at 5 %): s √(1/n + 1/m), where s is the spread within the two arms, as if "
            "seeds moved both alike, and n and m are their numbers of seeds."
        )
    if any(1 < len(arm.runs) < 4 for arm in arms):
        few = min(len(arm.runs) for arm in arms if len(arm.runs) > 1)
        sentences.append(
            f"With {few} seeds a spread is a rough estimate, and where seeds move one arm much "
            "further than the other, the test is less strict than 5 %."
        )
    if number := comparisons_made(arms):
        sentences.append(
            f"{count(number, 'comparison')} {'was' if number == 1 else 'were'} made, at 5 % each: "
            "of arms without any difference, about one comparison in twenty finds one all the same."
        )
    return " ".join(sentences)


def comparisons_made(arms: list[Arm]) -> int:
    """Those with a verdict: of the final bounds, at smaller budgets and over the last third; and
    of benchmarks.
    """
    final = compare(arms)
    tables = [budget_table(group, final) for group in by_data(arms).values()]
    made = [*final, *(comparison for table in tables for comparison in table.by_seeds)]
    scored = sum(len(b.compared()) + len(b.compared(late=True)) for b in benchmarks(arms))
    return scored + sum(comparison.verdict != "not known" for comparison in made)
