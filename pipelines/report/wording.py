"""Numbers and lists in sentences."""

import html
import re
from collections.abc import Iterable
from math import isnan

from ftmodel.analysis.differences import Difference
from pipelines.common.printable import printable

MARKUP = re.compile(r"[\\`*\[\]#|~$]|(?<!\w)_|_(?!\w)|!(?=\[)")  # not a _ within a name


def signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def percent(relative: float) -> str:
    """As the paper prints it: +44.44 %."""
    return f"{relative:+.2f} %".replace("-", "−")


def million(tokens: int) -> str:
    return f"{tokens:,}" if tokens < 1e6 else f"{tokens / 1e6:.4g} million"


def number(value: float, decimals: int) -> str:
    return "–" if isnan(value) else f"{value:.{decimals}f}"


def count(number: int, noun: str) -> str:
    """3 seeds; 34,567 tokens."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def p_value(p: float, adjusted: float, tests: int) -> str:
    """p = 0.016, 0.43 adjusted for 27 runs; of a single one its own alone."""
    return f"p = {p:.3g}" + (f", {adjusted:.3g} adjusted for {tests} runs" if tests > 1 else "")


def listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def in_words(difference: Difference) -> str:
    """−0.0123 ± 0.0010, seeds ± 0.0020: standard errors over documents, and the one over seeds
    that decides.
    """
    documents, seeds = difference.documents, difference.seeds
    known = documents is not None and not isnan(documents)
    return (
        signed(difference.mean)
        + (f" ± {documents:.4f}" if known else "")
        + ("" if isnan(seeds) else f", seeds ± {seeds:.4f}")
    )


def other_error(difference: Difference) -> str:
    """The error over seeds that does not decide, and why: ± 0.0020 of these two alone."""
    error = difference.other_seeds
    if isnan(error):
        return "–"
    if difference.is_pooled:
        return f"± {error:.4f} of these two alone"
    p = "p < 0.001" if difference.equality < 0.001 else f"p = {difference.equality:.3f}"
    return f"± {error:.4f} pooled; equal spreads are doubted, {p}"


def markdown(text: str) -> str:
    """The text on a line of Markdown, where it stands for itself: neither markup nor HTML."""
    line = " ".join(printable(html.escape(text, quote=False)).split())
    return MARKUP.sub(r"\\\g<0>", line)


def paragraphs(text: str) -> list[str]:
    """What blank lines divide, each on one line."""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]
