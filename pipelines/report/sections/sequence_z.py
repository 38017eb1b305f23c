"""What a latent code per sequence says about text: codes of one file alike, and interpolation."""

from ftmodel.analysis.differences import LEVEL
from ftmodel.analysis.permutation import adjusted
from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.latent_results import Clusters
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Section, Table
from pipelines.report.explanations import explained
from pipelines.report.wording import estimate

HEAD = ["run", "κ", "cross-entropy of", "with the first z"]
CLUSTERS_HEAD = ["run", "of one file", "of two files", "95 % below", "p", "verdict"]
HALVES_HEAD = ["run", "half of the bits", "as many random bits", "difference"]


def section(analysis: Analysis) -> Section | None:
    measured = [(run, z) for run in analysis.runs if (z := run.evaluation.sequence_z)]
    if not measured:
        return None
    rows, shares = [], []
    for run, z in measured:
        for text, first, changes in (
            ("first text", z.own, [step.start for step in z.path]),
            ("other text", z.other, [step.end for step in z.path]),
            ("first text, random bits", z.own, [step.random for step in z.path]),
        ):
            rows.append([run.name, run.kappa, text, *map(estimate, (first, *changes))])
        halves = [half for half in (z.half, z.half_random, z.half_minus_random) if half]
        if len(halves) == 3:
            shares.append([run.name, *(in_percent(half, 0) for half in halves)])
    steps = [f"{100 * step.share:.0f} % of bits" for step in measured[0][1].path]
    blocks: list[Block] = [Table([*HEAD, *steps], rows)]
    if apart := [(run.name, z.clusters) for run, z in measured if z.clusters]:
        blocks += [explained("Whether z tells files apart"), of_clusters(apart)]
    if shares:
        blocks += [explained("Gain from half of the bits"), Table(HALVES_HEAD, shares)]
    return Section("sequence_z", "One latent code per sequence", blocks)


def in_percent(share: Estimate, decimals: int) -> str:
    return estimate(Estimate(100 * share.mean, 100 * share.se), decimals) + " %"


def of_clusters(tests: list[tuple[str, Clusters]]) -> Table:
    """Whether z tells files apart, by the p-values of all runs."""
    ps = adjusted([clusters.p_value for _, clusters in tests])
    rows = []
    for (name, clusters), p in zip(tests, ps, strict=True):
        apart = p < LEVEL and clusters.same.mean > clusters.different.mean
        also = f", {p:.3g} adjusted for {len(ps)} runs" if len(ps) > 1 else ""
        rows.append(
            [
                name,
                in_percent(clusters.same, 1),
                in_percent(clusters.different, 1),
                f"{100 * clusters.null_95:.1f} percentage points",
                f"p = {clusters.p_value:.3g}{also}",
                "tells files apart" if apart else "not shown to tell files apart",
            ]
        )
    return Table(CLUSTERS_HEAD, rows)
