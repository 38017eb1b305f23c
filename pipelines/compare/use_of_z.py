"""What z is worth to each Free Transformer: what its KL buys, in bits per token."""

from dataclasses import dataclass

from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.run_results import RunResults
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import controls

NEGLIGIBLE = 0.05  # share of the KL
NO_KL = 0.005  # bits per token, for a κ of 1 and more


@dataclass(frozen=True)
class UseOfZ:
    arm: Arm
    baseline: Arm | None  # the plain one of the same data, model and token budget
    kl: Estimate
    use: Estimate  # filtering bound − reconstruction CE: what the encoder's z adds to the past
    waste: Estimate  # KL − use
    ce: Estimate

    @property
    def ignored(self) -> bool:
        """Whether κ pays for bits, but their use is negligible or within its error of 0."""
        return bool(self.arm.run.kappa_bits) and negligible(self.use, self.kl)

    @property
    def divided(self) -> tuple[list[RunResults], list[RunResults]] | None:
        """The runs that use z, and those that ignore it, if the arm's seeds differ in that."""
        if not self.arm.run.kappa_bits:
            return None
        using, ignoring = list[RunResults](), list[RunResults]()
        for run in self.arm.runs:
            figures = run.figures("bits_per_token")
            assert figures.use and figures.kl, "every Free Transformer has all figures"
            (ignoring if negligible(figures.use, figures.kl) else using).append(run)
        return (using, ignoring) if using and ignoring else None

    @property
    def recovery(self) -> float | None:
        """(NLL of the baseline − reconstruction CE) / KL; None without a baseline or a KL."""
        least = NO_KL * min(1, self.arm.run.kappa_bits or 1)
        if self.baseline is None or self.kl.mean < least:
            return None
        nll = self.baseline.bound("bits_per_token").mean
        return (nll - self.ce.mean) / self.kl.mean


def negligible(use: Estimate, kl: Estimate) -> bool:
    return use.mean < max(2 * use.se, NEGLIGIBLE * kl.mean)


def uses_of_z(arms: list[Arm]) -> list[UseOfZ]:
    """The use of z by each Free Transformer, in order."""
    uses = []
    for arm in (arm for arm in arms if not arm.baseline):
        plain = next((other for other in controls(arm, arms) if other.plain), None)
        f = arm.figures("bits_per_token")
        assert f.kl and f.use and f.waste and f.ce, "every Free Transformer has all figures"
        uses.append(UseOfZ(arm, plain, f.kl, f.use, f.waste, f.ce))
    return uses
