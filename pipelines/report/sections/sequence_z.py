"""What one z per sequence tells of text: whether z of one document are alike, and interpolation."""

from ftmodel.analysis.differences import LEVEL
from ftmodel.analysis.permutation import adjusted
from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.latent_results import Clusters, SequenceZ
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section
from pipelines.report.wording import p_value

HEAD = ["run", "κ", "cross-entropy of", "with the first z"]


def section(analysis: Analysis) -> Section | None:
    measured = [(run, z) for run in analysis.runs if (z := run.evaluation.sequence_z)]
    if not measured:
        return None
    steps = [f"{100 * step.share:.0f} % of bits" for step in measured[0][1].path]
    rows = [[run.name, run.kappa, *line] for run, z in measured for line in lines(z)]
    clusters = [(run.name, z.clusters) for run, z in measured if z.clusters]
    sentences = [*of_clusters(clusters), *(s for run, z in measured for s in halves(run.name, z))]
    return Section("sequence_z", "One z per sequence", sentences, [[*HEAD, *steps], *rows])


def lines(z: SequenceZ) -> list[list[str]]:
    return [
        ["text at the start", str(z.own), *(str(step.start) for step in z.path)],
        ["text at the end", str(z.other), *(str(step.end) for step in z.path)],
        ["text at the start, random bits", str(z.own), *(str(step.random) for step in z.path)],
    ]


def halves(name: str, z: SequenceZ) -> list[str]:
    if not (z.half and z.half_random and z.half_minus_random):
        return []
    return [
        f"{name}: replacing half of the bits by those of another text’s z recovers "
        f"{percent(z.half, 0)} of what replacing all of them gains that text, as many bits changed "
        f"at random {percent(z.half_random, 0)}: a difference of {points(z.half_minus_random)}."
    ]


def points(share: Estimate) -> str:
    return percent(share, 0).replace(" %", " percentage points")


def percent(share: Estimate, decimals: int) -> str:
    mean, se = (f"{100 * value:.{decimals}f}" for value in (share.mean, share.se))
    return f"{mean} ± {se} %".replace("-", "−")


def of_clusters(tests: list[tuple[str, Clusters]]) -> list[str]:
    """Whether z tells files apart, by the p-values of all runs."""
    ps = adjusted([clusters.p_value for _, clusters in tests])
    sentences = []
    for (name, clusters), p in zip(tests, ps, strict=True):
        apart = p < LEVEL and clusters.same.mean > clusters.different.mean
        verdict = "z tells files apart" if apart else "z is not shown to tell files apart"
        sentences.append(
            f"{name}: {verdict}: bits agree in {percent(clusters.same, 1)} of pairs of texts of "
            f"one file and {percent(clusters.different, 1)} of two; when texts are permuted among "
            f"files the excess is below {100 * clusters.null_95:.1f} percentage points in 95 % of "
            "cases "
            f"({p_value(clusters.p_value, p, len(ps))})."
        )
    return sentences
