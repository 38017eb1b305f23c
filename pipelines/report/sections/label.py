"""What z tells of a hidden label: figures of each run in a table, and a sentence on each arm."""

from statistics import fmean
from typing import Any

from pipelines.report.arms import Arm

SHOWN = 0.05  # p below which z is said to carry the label
HEAD = [
    "run",
    "best bit",
    "permuted labels: mean",
    "95 % below",
    "p",
    "all bits together",
    "permuted labels: mean",
    "95 % below",
    "p",
    "the text itself",
]


def label_table(arms: list[Arm]) -> list[list[str]]:
    """Bits of information and p, a row a run under the head."""
    rows = []
    for one in (one for arm in arms for one in arm.runs):
        label = one.metrics["label"]
        cells = [one.name]
        for chance in (label, label["whole"]):
            cells += [f"{chance[key]:.4f}" for key in ("bits", "null_mean", "null_95")]
            cells.append(f"{chance['p_value']:.3g}")
        rows.append([*cells, f"{label['text']:.4f}"])
    return [HEAD, *rows]


def p_of_both(label: dict[str, Any]) -> float:
    """p of two tests, the best bit and all together, of which the better is taken (Bonferroni)."""
    return min(1.0, 2 * min(label["p_value"], label["whole"]["p_value"]))


def label_sentence(arm: Arm) -> str:
    """Whether z of an arm is shown to carry the label, by p, and how much of it."""
    labels = [one.metrics["label"] for one in arm.runs]
    ps = [p_of_both(label) for label in labels]
    carry = sum(p < SHOWN for p in ps)
    if not carry:
        return f"{arm.name}: z is not shown to carry the label (p {at('≥', min(ps), labels)})."
    best, whole, text = (
        fmean(values)
        for values in (
            [label["bits"] for label in labels],
            [label["whole"]["bits"] for label in labels],
            [label["text"] for label in labels],
        )
    )
    how_much = (
        f"{best:.2f} bits by its best bit and {whole:.2f} by all together, of {text:.2f} that the "
        f"text tells{', means over seeds' if len(labels) > 1 else ''}"
    )
    if carry == len(labels):
        return f"{arm.name}: z carries the label: {how_much} (p {at('≤', max(ps), labels)})."
    few = at("≤", max(p for p in ps if p < SHOWN), [None] * carry)
    return (
        f"{arm.name}: z carries the label in {carry} of {len(labels)} runs (p {few}), and is not "
        f"shown to in the others: {how_much}."
    )


def at(sign: str, p: float, of: list[Any]) -> str:
    """p of a single run, or the limit over several."""
    return f"{sign if len(of) > 1 else '='} {p:.3g}"
