"""z from the prior, z from a text: what generations have of the target, what reconstructions."""

from collections.abc import Callable
from math import isnan, nan
from statistics import fmean, stdev

from ftmodel.designs.hinge import LN2
from pipelines.artifacts.results import Estimate
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import Comparison, contrast
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section, Table
from pipelines.report.sections.target_latent import explained, over
from pipelines.report.wording import in_words, listed


def section(analysis: Analysis) -> Section | None:
    arms, sentences = list[Arm](), list[str]()
    for group in analysis.by_data.values():
        if asked := explained(group):
            arms += [arm for arm in group if arm.baseline or arm in asked]
            sentences += prior_sentences(asked)
    if not arms:
        return None
    title = "Generations with z of the prior beside reconstructions with z of a text"
    return Section("target_reconstruction", title, sentences, target_table(arms))


def aggregate(arm: Arm) -> tuple[list[float], list[float]]:
    """Bits a sequence between the aggregate posterior and the prior: at least, and at most."""
    return (
        over(arm, lambda z: z.aggregate_bits.at_least),
        over(arm, lambda z: z.aggregate_bits.at_most),
    )


def reconstructed(arm: Arm) -> list[float]:
    """Share of valid sequences with z from the posterior, of each seed."""
    return over(arm, lambda z: z.reconstruction.valid)


def valid(arm: Arm) -> list[float]:
    """Share of valid sequences generated with z from the prior, of each seed."""
    return [run.evaluation.fresh.valid for run in arm.runs if run.evaluation.fresh]


def cell(values: list[float], decimals: int) -> str:
    """Mean and, of several seeds, ± their sample standard deviation."""
    if not values:
        return "–"
    spread = f" ± {stdev(values):.{decimals}f}" if len(values) > 1 else ""
    mean = round(fmean(values), decimals) or 0.0  # not −0.00
    return f"{mean:.{decimals}f}{spread}".replace("-", "−")


def estimate_cell(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    spread = "" if isnan(estimate.spread) else f" ± {estimate.spread:.4f}"
    return f"{estimate.mean:.4f}{spread}".replace("-", "−")


def aggregate_cell(arm: Arm) -> str:
    """Between at least and at most, bits per sequence."""
    least, most = (cell(end, 1) if end else "" for end in aggregate(arm))
    return f"{least} to {most}" if least and most else f"≤ {most}" if most else "–"


def exact_cell(arm: Arm) -> str:
    """The process's own, of the documents that all seeds are scored on."""
    exact = arm.figures().exact
    return f"{LN2 * exact.mean:.4f}" if exact else "–"


ROWS: dict[str, Callable[[Arm], str]] = {
    "seeds": lambda arm: str(len(arm.runs)),
    "exact NLL of the process, nats/token": exact_cell,
    "NLL or filtering bound − exact, nats/token": lambda arm: estimate_cell(arm.gap),
    "ELBO bound − exact, nats/token": lambda arm: estimate_cell(arm.elbo_gap),
    "KL, bits/token": lambda arm: estimate_cell(arm.figures().kl),
    "start known from z, at least, bits": lambda arm: cell(over(arm, lambda z: z.start_bits), 2),
    "aggregate posterior from the prior, bits/sequence": aggregate_cell,
    "prior generations: valid": lambda arm: cell(valid(arm), 3),
    "posterior reconstructions: valid": lambda arm: cell(reconstructed(arm), 3),
    "– distance of targets, characters": lambda arm: cell(
        over(arm, lambda z: z.reconstruction.distance), 1
    ),
    "– overlap of noise": lambda arm: cell(over(arm, lambda z: z.reconstruction.noise), 2),
}


def target_table(arms: list[Arm]) -> Table:
    """A column for each arm, the baselines among them, and a row for each figure."""
    head = ["", *(arm.name for arm in arms)]
    return [head, *([name, *map(row, arms)] for name, row in ROWS.items())]


def prior_sentences(arms: list[Arm]) -> list[str]:
    """Where prior generations are worse than posterior reconstructions, with the gap between the
    aggregate posterior and the prior; and where not.
    """
    compared = [(arm, against_posterior(arm)) for arm in arms if reconstructed(arm)]
    worse = [(arm, c) for arm, c in compared if c.verdict == "lower"]
    same = {
        verdict: [arm for arm, c in compared if c.verdict == verdict]
        for verdict in ("no difference", "higher", "not known")
    }
    words = {
        "no difference": "Prior generations are not shown to be worse than posterior "
        "reconstructions: {}.",
        "higher": "Prior generations are valid more often than posterior reconstructions: {}.",
        "not known": "With a single seed no difference between prior generations and posterior "
        "reconstructions is claimed: {}.",
    }
    return [
        *(worse_sentence(arm, c) for arm, c in worse),
        *(words[v].format(listed(map(shares, group))) for v, group in same.items() if group),
    ]


def against_posterior(arm: Arm) -> Comparison:
    """Valid share with z from the prior minus that with z from the posterior, over seeds."""
    return contrast(arm, arm, "valid", valid(arm), reconstructed(arm))


def shares(arm: Arm) -> str:
    posterior = fmean(reconstructed(arm))
    return f"{arm.name} (valid {fmean(valid(arm)):.3f} against {posterior:.3f})"


def worse_sentence(arm: Arm, comparison: Comparison) -> str:
    said = (
        f"Prior generations are worse than posterior reconstructions: {shares(arm)}, "
        f"{in_words(comparison)} ({comparison.words})."
    )
    least, most = aggregate(arm)
    if not most:
        return f"{said} How far the aggregate posterior is from the prior was not measured."
    if not least:  # under a learned prior KL is no bound of it, either
        return (
            f"{said} The KL of the aggregate posterior from the prior is at most {fmean(most):.1f} "
            "bits per sequence."
        )
    return (
        f"{said} The KL of the aggregate posterior from the prior is between {fmean(least):.1f} "
        f"and {fmean(most):.1f} bits per sequence; the mean KL of a single sequence’s z, which "
        f"contains it, is {sequence_kl(arm):.1f} bits."
    )


def sequence_kl(arm: Arm) -> float:
    """KL of a whole sequence of z, bits, mean over sequences and seeds."""
    kl, evaluation = arm.figures().kl, arm.first.evaluation
    return kl.mean * evaluation.tokens / evaluation.documents if kl else nan
