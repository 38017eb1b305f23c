"""What z is worth: KL, use of z, waste and recovery."""

from pipelines.compare.use_of_z import UseOfZ, uses_of_z
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import Section, Table, explained
from pipelines.report.wording import estimate

HEAD = ["arm", "data", "κ", "KL", "use of z", "waste", "recovery"]
TEXT = """\
Bits per token. Use of z is the filtering bound minus reconstruction cross-entropy, waste the
rest of the KL, which buys nothing. Use may fall below 0, and a use of 0 alone does not show that
z is ignored; where it was measured, the z of another text tests that. Recovery is (NLL of the
plain baseline − reconstruction cross-entropy) ÷ KL; below 1 the latent costs more than it brings
under the ELBO bound. ± is one standard error over documents."""


def section(analysis: Analysis) -> Section | None:
    rows = [row(use) for arms in analysis.by_data.values() for use in uses_of_z(arms)]
    blocks = [explained(TEXT, "use-of-z-waste-recovery"), Table(HEAD, rows)]
    return Section("use_of_z", "What z is worth", blocks) if rows else None


def row(use: UseOfZ) -> list[str]:
    recovery = "–" if use.recovery is None else f"{use.recovery:.2f}".replace("-", "−")
    arm = use.arm
    figures = [estimate(use.kl), estimate(use.use), estimate(use.waste), recovery]
    return [arm.name, arm.run.data, arm.first.kappa, *figures]
