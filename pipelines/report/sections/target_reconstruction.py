"""z from the prior, z from a text: what generations have of the target, what reconstructions."""

from collections.abc import Callable
from math import isnan
from statistics import fmean, stdev

from ftmodel.designs.hinge import LN2
from pipelines.artifacts.results import Estimate
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import contrast
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section, Table, explained
from pipelines.report.sections.target_latent import explained_arms, over
from pipelines.report.wording import in_words

TEXT = """\
Generation draws z from the prior, while the decoder was trained with z that an encoder drew for
a text. Reconstructions have z from the encoder, of fresh sequences: where they are valid and
generations are not, the decoder can do its part, and the prior draws z that it seldom met. How
far the encoder’s z are from the prior is the KL of the aggregate posterior, the distribution
over all texts of a whole sequence of z. Figures are means, ± is the spread over seeds. Valid
shares are compared by the rule for arms, once for each Free Transformer; these are not among the
comparisons counted above."""


def section(analysis: Analysis) -> Section | None:
    arms = [
        arm
        for group in analysis.by_data.values()
        if (asked := explained_arms(group))
        for arm in group
        if arm.baseline or arm in asked
    ]
    if not arms:
        return None
    title = "Generations with z of the prior beside reconstructions with z of a text"
    blocks = [explained(TEXT, "the-latent-probe"), target_table(arms)]
    return Section("target_reconstruction", title, blocks)


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
    "↳ distance of targets, characters": lambda arm: cell(
        over(arm, lambda z: z.reconstruction.distance), 1
    ),
    "↳ overlap of noise": lambda arm: cell(over(arm, lambda z: z.reconstruction.noise), 2),
    "prior generations − posterior reconstructions": lambda arm: against_posterior(arm),
    "mean KL of a single sequence’s z, bits": lambda arm: sequence_kl(arm),
}


def target_table(arms: list[Arm]) -> Table:
    """A column for each arm, the baselines among them, and a row for each measurement."""
    rows = [[name, *map(row, arms)] for name, row in ROWS.items()]
    return Table(["", *(arm.name for arm in arms)], rows)


def against_posterior(arm: Arm) -> str:
    """Valid share with z from the prior minus that with z from the posterior, over seeds."""
    if not reconstructed(arm):
        return "–"
    c = contrast(arm, arm, "valid", valid(arm), reconstructed(arm))
    words = {"lower": "**worse**", "higher": "**better**"}
    return f"{in_words(c)}: {words.get(c.verdict, c.verdict)} ({c.words})"


def sequence_kl(arm: Arm) -> str:
    """KL of a whole sequence of z, which contains that of the aggregate, mean over sequences and
    seeds.
    """
    kl, evaluation = arm.figures().kl, arm.first.evaluation
    return f"{kl.mean * evaluation.tokens / evaluation.documents:.1f}" if kl else "–"
