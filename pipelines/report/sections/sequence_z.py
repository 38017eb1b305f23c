"""What one z a sequence tells of text: whether z of one document are alike, and interpolation."""

from ftmodel.analysis.differences import LEVEL
from ftmodel.analysis.permutation import adjusted
from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.latent_results import Clusters, PathStep
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section
from pipelines.report.wording import p_value

LINES = {  # of a run
    "text at the start": lambda step: step.start,
    "text at the end": lambda step: step.end,
    "random bits": lambda step: step.random,
}


def section(analysis: Analysis) -> Section | None:
    measured = [(run, z) for run in analysis.runs if (z := run.evaluation.sequence_z)]
    if not measured:
        return None
    head = ["run", "κ", "cross-entropy of", *(heading(step) for step in measured[0][1].path)]
    rows = [
        [run.name, run.kappa, line, *(str(of(step)) for step in z.path)]
        for run, z in measured
        for line, of in LINES.items()
    ]
    clusters = [(run.name, z.clusters) for run, z in measured if z.clusters]
    sentences = [
        *of_clusters(clusters),
        *(halves(run.name, z.half, z.half_random) for run, z in measured if z.half),
    ]
    return Section("sequence_z", "One z a sequence", sentences, [head, *rows])


def heading(step: PathStep) -> str:
    return f"{100 * step.share:.0f} % of bits"


def halves(name: str, half: Estimate, random: Estimate | None) -> str:
    null = f", as many bits changed at random {percent(random, 0)}" if random else ""
    return (
        f"{name}: replacing half of the bits by those of another text’s z recovers "
        f"{percent(half, 0)} of what replacing all of them gains that text{null}."
    )


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
            f"one file and {percent(clusters.different, 1)} of two; of texts permuted among files "
            f"95 % differ by less than {100 * clusters.null_95:.1f} % "
            f"({p_value(clusters.p_value, p, len(ps))})."
        )
    return sentences
