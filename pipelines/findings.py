"""Which differences between arms count, and how the report says so.

A Free Transformer is compared with the baseline of the same data, model and token budget. What
counts is a difference of more than two standard errors that is also more than seeds differ by.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch

from ftmodel.bounds import mean_and_error
from pipelines.arms import Arm, by_data

VERDICTS = {
    "lower": "Lower bound than {}, by more than two standard errors",
    "no difference": "No difference measured from {}",
    "higher": "Bound above {}, so no gain shown",
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
    "Standard errors and seeds": "± says how well a trained model was measured on held-out "
    "sequences. It says nothing of how far training with another seed would move the figure. All "
    "arms are scored on the same sequences; the error of a difference is that of the differences "
    "sequence by sequence.",
    "Training curves": "They are taken on training batches while the model changes, and bound by "
    "ELBO. The held-out figures are the ones to quote.",
    "Bits per token and per byte": "Tokens differ between tokenizers, bytes do not. Figures on "
    "different data are not comparable at all.",
    "Parameters": "A Free Transformer has an encoder block and a table of 2^H embeddings on top of "
    "its baseline: the same blocks and token budget, not the same number of parameters.",
}


@dataclass(frozen=True)
class Comparison:
    """A Free Transformer's bound minus the NLL of its baseline, bits per token."""

    arm: Arm
    baseline: Arm
    difference: float
    error: float  # standard error of the differences, sequence by sequence
    seed_spread: float  # 0 where no arm has a second seed

    @property
    def verdict(self) -> str:
        if not abs(self.difference) > max(2 * self.error, self.seed_spread):
            return "no difference"
        return "lower" if self.difference < 0 else "higher"


def same_but_for_seed(arm: Arm) -> tuple[str, str, float | None, int, int]:
    run = arm.run
    return run.data, run.model, run.kappa_bits, run.extra_blocks, run.tokens


def seed_spread(arms: list[Arm]) -> float | None:
    """Largest difference, bits per token, between bounds of runs that differ only in their seed.

    None if no two runs do.
    """
    groups: dict[Any, list[float]] = defaultdict(list)
    for arm in arms:
        groups[same_but_for_seed(arm)].append(arm.bound.mean)
    repeated = [bounds for bounds in groups.values() if len(bounds) > 1]
    return max((max(bounds) - min(bounds) for bounds in repeated), default=None)


def find_baseline(arm: Arm, arms: list[Arm]) -> Arm | None:
    """The baseline of the same data, model and token budget, with the same seed if there is one."""
    data, model, *_, tokens = same_but_for_seed(arm)
    matches = [
        other for other in arms if same_but_for_seed(other) == (data, model, None, 0, tokens)
    ]
    return min(matches, key=lambda other: other.run.seed != arm.run.seed, default=None)


def compare(arms: list[Arm]) -> list[Comparison]:
    """Each Free Transformer against its baseline; those without a baseline are left out."""
    return [
        Comparison(
            arm,
            baseline,
            *paired_difference(arm, baseline),
            seed_spread(by_data(arms)[arm.run.data]) or 0.0,
        )
        for arm in arms
        if not arm.baseline and (baseline := find_baseline(arm, arms))
    ]


def paired_difference(arm: Arm, other: Arm) -> tuple[float, float]:
    """Mean and standard error of one bound minus the other's, on the sequences scored by both."""
    mine, others = (torch.tensor(a.details["bound_bits"]).double() for a in (arm, other))
    found = mean_and_error(mine - others)
    return found["mean"], found["se"]


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
        free = [arm for arm in group if not arm.baseline]
        kinds = []
        if len(free) < len(group):
            kinds.append(count(len(group) - len(free), "baseline"))
        if free:
            kappas = ", ".join(dict.fromkeys(arm.kappa for arm in free))
            kinds.append(f"{count(len(free), 'Free Transformer')} (κ = {kappas} bits per token)")
        budgets = sorted({arm.metrics["trained_tokens"] for arm in group})
        tokens = " or ".join(million(budget) for budget in budgets)
        parts.append(f"{' and '.join(kinds)} on {data}, {tokens} training tokens each")
    return (
        f"{'; '.join(parts)}. Arms are compared by an upper bound on the negative log-likelihood "
        f"of held-out sequences: exact for a baseline, IWAE-{iwae_samples} for a Free Transformer. "
        "Lower is better."
    )


def findings(arms: list[Arm]) -> dict[str, list[str]]:
    """What was found on each data set, one sentence an entry, from the bounds alone."""
    compared = compare(arms)
    found = {}
    for data, group in by_data(arms).items():
        here = [c for c in compared if c.arm.run.data == data]
        found[data] = verdicts(here) + gaps_in_the_design(group, here) + collapses(group)
    return found


def verdicts(comparisons: list[Comparison]) -> list[str]:
    groups: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for comparison in comparisons:
        groups[comparison.baseline.name, comparison.verdict].append(comparison)
    sentences = []
    for (name, verdict), group in groups.items():
        against = f"{name} ({group[0].baseline.bound} bits per token)"
        each = ", ".join(f"{c.arm.name} ({signed(c.difference)} ± {c.error:.4f})" for c in group)
        sentences.append(f"{VERDICTS[verdict].format(against)}: {each}.")
    return sentences


def gaps_in_the_design(arms: list[Arm], comparisons: list[Comparison]) -> list[str]:
    """What could not be compared for want of a partner."""
    compared = {c.arm.name for c in comparisons}
    alone = [arm.name for arm in arms if not arm.baseline and arm.name not in compared]
    if alone:
        names = ", ".join(alone)
        return [f"No baseline of the same model and token budget to compare with: {names}."]
    if not comparisons:
        return ["No Free Transformer to compare with the baseline."]
    return []


def collapses(arms: list[Arm]) -> list[str]:
    names = ", ".join(arm.name for arm in arms if arm.collapsed)
    rule = "KL under a tenth of κ throughout the last third of training"
    return [f"The latent collapsed ({rule}): {names}."] if names else []


def caveat(arms: list[Arm]) -> str:
    """How far the findings go."""
    spreads = {data: seed_spread(group) for data, group in by_data(arms).items()}
    sentences = [
        "± is one standard error over held-out sequences; a difference within two of them is "
        "reported as none."
    ]
    if unknown := [data for data, spread in spreads.items() if spread is None]:
        sentences.append(
            f"One seed per arm on {' and '.join(unknown)}: how far another seed would move these "
            "figures is not known, so nothing is claimed beyond these very runs."
        )
    sentences += [
        f"On {data}, runs that differ only in their seed differ by up to {spread:.4f} bits per "
        "token; a smaller difference counts as none."
        for data, spread in spreads.items()
        if spread is not None
    ]
    return " ".join(sentences)
