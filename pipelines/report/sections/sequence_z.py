"""What one z per sequence tells of text: whether z of one document are alike, and interpolation."""

from ftmodel.analysis.differences import LEVEL
from ftmodel.analysis.permutation import adjusted
from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.latent_results import Clusters, SequenceZ
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Block, Section, Table, explained, prose
from pipelines.report.wording import p_value

TEXT = """\
Reconstruction cross-entropy of held-out text, bits per token, as the bits of its z are replaced,
in random order, by those of the z of a text of another document: no language-model loss, and not
to be compared between arms. After the first z, figures are changes from it. Where those of the
text at the end fall in steps, single bits mean something on their own; where they fall only with
the last of them, codes are like arbitrary labels. “Random bits” is the first text with as many
bits changed at random: the null. ± is one standard error over documents, of the change."""
CLUSTERS = """\
Whether z tells files apart: how often bits agree in pairs of texts of one file and of two, and
how far the excess reaches in 95 % of cases when texts are permuted among files. The verdict
takes p adjusted for the number of runs (Benjamini and Hochberg). Pairs are counted alike, so
that a large file weighs more."""
HALVES = """\
The share of what replacing all bits gains the other text that half of its bits bring, and that
as many bits changed at random bring."""
HEAD = ["run", "κ", "cross-entropy of", "with the first z"]


def section(analysis: Analysis) -> Section | None:
    measured = [(run, z) for run in analysis.runs if (z := run.evaluation.sequence_z)]
    if not measured:
        return None
    steps = [f"{100 * step.share:.0f} % of bits" for step in measured[0][1].path]
    rows = [[run.name, run.kappa, *line] for run, z in measured for line in lines(z)]
    blocks: list[Block] = [
        explained(TEXT, "one-z-per-sequence"),
        Table([*HEAD, *steps], rows),
    ]
    if apart := [(run.name, z.clusters) for run, z in measured if z.clusters]:
        blocks += [prose(CLUSTERS), of_clusters(apart)]
    if shares := [row for run, z in measured for row in halves(run.name, z)]:
        head = ["run", "half of the bits", "as many random bits", "difference"]
        blocks += [prose(HALVES), Table(head, shares)]
    return Section("sequence_z", "One z per sequence", blocks)


def lines(z: SequenceZ) -> list[list[str]]:
    return [
        ["text at the start", str(z.own), *(str(step.start) for step in z.path)],
        ["text at the end", str(z.other), *(str(step.end) for step in z.path)],
        ["text at the start, random bits", str(z.own), *(str(step.random) for step in z.path)],
    ]


def halves(name: str, z: SequenceZ) -> list[list[str]]:
    if not (z.half and z.half_random and z.half_minus_random):
        return []
    shares = (percent(each, 0) for each in (z.half, z.half_random, z.half_minus_random))
    return [[name, *shares]]


def percent(share: Estimate, decimals: int) -> str:
    mean, se = (f"{100 * value:.{decimals}f}" for value in (share.mean, share.se))
    return f"{mean} ± {se} %".replace("-", "−")


def of_clusters(tests: list[tuple[str, Clusters]]) -> Table:
    """Whether z tells files apart, by the p-values of all runs."""
    ps = adjusted([clusters.p_value for _, clusters in tests])
    rows = []
    for (name, clusters), p in zip(tests, ps, strict=True):
        apart = p < LEVEL and clusters.same.mean > clusters.different.mean
        rows.append([
            name,
            percent(clusters.same, 1),
            percent(clusters.different, 1),
            f"{100 * clusters.null_95:.1f} percentage points",
            p_value(clusters.p_value, p, len(ps)),
            "tells files apart" if apart else "not shown to tell files apart",
        ])  # fmt: skip
    return Table(["run", "of one file", "of two files", "95 % below", "p", "verdict"], rows)
