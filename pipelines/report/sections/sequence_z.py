"""What one z a sequence tells of text: of its document, and on the way to another's z."""

from pipelines.artifacts.latent_results import Clusters, PathStep, SequenceZ
from pipelines.report.analysis import Analysis
from pipelines.report.sections.section import Section

SHOWN = 0.05  # p below which z is said to tell documents apart
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
    sentences = [f"{run.name}: {words}." for run, z in measured for words in sentences_of(z)]
    return Section("sequence_z", "One z a sequence", sentences, [head, *rows])


def heading(step: PathStep) -> str:
    return f"{100 * step.share:.0f} % of bits"


def sentences_of(z: SequenceZ) -> list[str]:
    sentences = [clusters_in_words(z.clusters)] if z.clusters else []
    if z.half:
        gain = f"{100 * z.half.mean:.0f} ± {100 * z.half.se:.0f} %"
        sentences.append(
            f"half of the bits of another text’s z bring that text {gain} of what all of them bring"
        )
    return sentences


def clusters_in_words(clusters: Clusters) -> str:
    figures = (
        f"bits agree in {100 * clusters.same.mean:.1f} % of pairs of texts of one file and "
        f"{100 * clusters.different.mean:.1f} % of two (p = {clusters.p_value:.3g})"
    )
    if clusters.p_value < SHOWN and clusters.same.mean > clusters.different.mean:
        return f"z tells files apart: {figures}"
    return f"z is not shown to tell files apart: {figures}"
