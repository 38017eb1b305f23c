"""z from the prior, z from a text: what generations have of the target, what reconstructions."""

from collections.abc import Callable

from ftmodel.designs.hinge import LN2
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import contrast
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import BELOW, Section, Table
from pipelines.report.sections.target_latent import details, over
from pipelines.report.wording import in_words, seeds_cell


def section(analysis: Analysis) -> Section | None:
    arms = [arm for arm in analysis.arms if arm.first.on_target]
    title = "Generations beside reconstructions"
    blocks = [target_table(arms)]
    return Section("target_reconstruction", title, blocks) if any(map(details, arms)) else None


def mean_cell(name: str, decimals: int) -> Callable[[Arm], str]:
    """The cell of a figure, by its name in figure4.csv."""
    return lambda arm: seeds_cell(over(arm, name), decimals)


def valid(arm: Arm) -> list[float]:
    """Share of valid sequences generated with z from the prior, of each seed."""
    return [run.evaluation.fresh.valid for run in arm.runs if run.evaluation.fresh]


def exact(arm: Arm) -> str:
    """The process's own, of the documents that all seeds are scored on."""
    exact = arm.figures().exact
    return f"{LN2 * exact.mean:.4f}" if exact else "–"


def aggregate(arm: Arm) -> str:
    """Between at least and at most, bits per sequence."""
    least, most = (mean_cell(f"aggregate_at_{end}_bits", 1)(arm) for end in ("least", "most"))
    if most == "–":
        return "–"
    return f"≤ {most}" if least == "–" else f"{least} to {most}"


def against_posterior(arm: Arm) -> str:
    """Valid share with z from the prior minus that with z from the posterior, over seeds."""
    reconstructed = over(arm, "reconstruction_valid")
    if not reconstructed:
        return "–"
    c = contrast(arm, arm, "valid", valid(arm), reconstructed)
    words = {"lower": "**worse**", "higher": "**better**"}
    return f"{in_words(c)}: {words.get(c.verdict, c.verdict)} ({c.words})"


def sequence_kl(arm: Arm) -> str:
    """KL of a whole sequence of z, which bounds the aggregate's; over sequences and seeds."""
    kl, evaluation = arm.figures().kl, arm.first.evaluation
    return f"{kl.mean * evaluation.tokens / evaluation.documents:.1f}" if kl else "–"


ROWS: dict[str, Callable[[Arm], str]] = {
    "seeds": lambda arm: str(len(arm.runs)),
    "exact NLL of the process, nats/token": exact,
    "NLL or filtering bound − exact, nats/token": mean_cell("gap_nats_per_token", 4),
    "ELBO bound − exact, nats/token": mean_cell("elbo_gap_nats_per_token", 4),
    "KL, bits/token": mean_cell("kl_bits_per_token", 4),
    "start known from z, at least, bits": mean_cell("start_bits", 2),
    "aggregate posterior from the prior, bits/sequence": aggregate,
    "prior generations: valid": lambda arm: seeds_cell(valid(arm), 3),
    "posterior reconstructions: valid": mean_cell("reconstruction_valid", 3),
    f"{BELOW}distance of targets, characters": mean_cell("reconstruction_distance", 1),
    f"{BELOW}overlap of noise": mean_cell("reconstruction_noise", 2),
    "prior generations − posterior reconstructions": against_posterior,
    "mean KL of a single sequence’s z, bits": sequence_kl,
}


def target_table(arms: list[Arm]) -> Table:
    """A column for each arm, the baselines among them, and a row for each measurement."""
    rows = [[name, *map(row, arms)] for name, row in ROWS.items()]
    return Table(["", *(arm.name for arm in arms)], rows)
