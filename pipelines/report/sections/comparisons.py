"""What may and may not be compared, in short; docs/report.md says it term by term."""

from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section, Text

TEXT = """\
- Reconstruction cross-entropy is not a language-model loss: its z has read what is scored.
- KL is a cost, not a measure of quality.
- ELBO, IWAE and prior-sample bounds are looser than the filter’s.
- Training curves are of batches and of the ELBO.
- Figures on different data are not comparable at all.
- ± says how well a trained model was measured, and nothing of how far another seed would move it.
- A Free Transformer and its baseline differ in their number of parameters."""


def section(analysis: Analysis) -> Section:
    return Section("comparisons", "What may not be compared", [Text(TEXT)])
