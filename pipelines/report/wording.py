"""Numbers, differences and lists as they are printed: words for sentences, cells for tables."""

from collections.abc import Iterable
from math import isnan
from statistics import fmean, stdev

from ftmodel.analysis.differences import Difference
from ftmodel.analysis.statistics import clopper_pearson
from pipelines.artifacts.results import Estimate
from pipelines.compare.comparison import Comparison
from pipelines.report.blocks import MISSING, Cell, Verdict


def number(value: float | None, decimals: int = 4) -> str:
    """A number such as −0.1234; a dash where there is none."""
    if value is None or isnan(value):
        return "–"
    rounded = round(value, decimals) + 0.0  # not −0.00
    return f"{rounded:.{decimals}f}".replace("-", "−")


def p_value(p: float | None) -> str:
    return "–" if p is None else f"{p:.3g}"


def signed(value: float, decimals: int = 4) -> str:
    return f"{value:+.{decimals}f}".replace("-", "−")


def count(number: int, noun: str) -> str:
    """A number with its noun: 3 seeds; 34,567 tokens."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def between(ends: tuple[float, float], decimals: int) -> str:
    """The ends of an interval: 0.01 to 0.91."""
    return " to ".join(number(end, decimals) for end in ends)


def share(found: int, trials: int, noun: str) -> str:
    """A count of few with its 95 % interval: 15 of 16 runs (95 %: 0.70 to 1.00)."""
    return f"{found} of {count(trials, noun)} (95 %: {between(clopper_pearson(found, trials), 2)})"


def magnitude(number: float) -> str:
    """A large number in short: 1.5 B."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:,.0f}"


def listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def estimate(value: Estimate | None, decimals: int = 4) -> Cell:
    """An estimate such as 0.7654 ± 0.0100, filter ± 0.00050, spread 0.0141: standard errors over
    documents and repeated filters, standard deviation over seeds; unknown ones are left out.
    """
    if value is None:
        return MISSING
    error = "" if isnan(value.se) else f"± {number(value.se, decimals)}"
    notes = []
    if value.monte_carlo is not None:
        notes.append(f"filter ± {value.monte_carlo:.5f}")
    if not isnan(value.spread):
        notes.append(f"spread {number(value.spread, decimals)}")
    error = (error + value.convergence).strip()
    return Cell(number(value.mean, decimals), error, tuple(notes))


def seeds_cell(seeds: list[float], decimals: int) -> Cell:
    """Mean over seeds and, if there are several, ± their sample standard deviation."""
    if not seeds:
        return MISSING
    spread = f"± {number(stdev(seeds), decimals)}" if len(seeds) > 1 else ""
    return Cell(number(fmean(seeds), decimals), spread)


def difference_cell(difference: Difference | None) -> Cell:
    """A difference such as −0.0123 ± 0.0010, seeds ± 0.0020: the standard error over documents, and
    the deciding one over seeds.
    """
    if difference is None:
        return MISSING
    documents, seeds = difference.documents, difference.seeds
    known = documents is not None and not isnan(documents)
    error = f"± {documents:.4f}" if known else ""
    return Cell(signed(difference.mean), error, () if isnan(seeds) else (f"seeds ± {seeds:.4f}",))


def other_error(difference: Difference | None) -> Cell:
    """The error over seeds that does not decide, pooled or not, and why."""
    if difference is None or isnan(error := difference.other_seeds):
        return MISSING
    if difference.is_pooled:
        return Cell(f"± {error:.4f} of these two alone")
    p = "p < 0.001" if difference.equality < 0.001 else f"p = {difference.equality:.3f}"
    return Cell(f"± {error:.4f} pooled; equal spreads are doubted, {p}")


def verdict(comparison: Comparison, reason: str = "") -> Verdict:
    """The rule's word for a difference, with a reason, by default how far it may go and that one
    seed says so.
    """
    c = comparison
    if not reason:
        far = "" if c.may_be_loose else c.how_far
        reason = ", ".join(filter(None, [far, "one seed" if c.decided and c.one_seed else ""]))
    return Verdict(c.qualified_verdict, c.counts, reason=reason, star=c.survives)
