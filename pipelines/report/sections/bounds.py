"""The held-out bounds: all arms side by side, and against their baselines."""

from pipelines.artifacts.results import UNITS, Figures
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import Comparison
from pipelines.config.schema import AUTO, EvaluationConfig
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import NOT_COMPARABLE, Block, Section, Table, Text, heading
from pipelines.report.verdicts import name
from pipelines.report.wording import estimate, in_words, other_error, verdict

FIELDS = {  # of Figures, by head
    "NLL (exact)": "nll",
    "filtering bound": "filtering",
    f"ELBO bound{NOT_COMPARABLE}": "elbo",
    f"IWAE-{{}} bound{NOT_COMPARABLE}": "iwae",
    f"prior-sample bound{NOT_COMPARABLE}": "prior",
    f"KL{NOT_COMPARABLE}": "kl",
    f"reconstruction CE{NOT_COMPARABLE}": "ce",
}
CALIBRATION_HEAD = [
    *("run", "particles", "share of the encoder’s logits", "converged", "gain of twice as many"),
    "bound of training text by particles",
]
PROPOSALS: dict[float | None, str] = {None: "by the default rule", 0: "from the prior"}


def section(analysis: Analysis) -> Section:
    blocks = (data_blocks(data, arms, analysis) for data, arms in analysis.by_data.items())
    return Section("bounds", "Measurements", [block for each in blocks for block in each])


def data_blocks(data: str, arms: list[Arm], analysis: Analysis) -> list[Block]:
    """All tables of one data set; the first of its units is the one to compare in."""
    unit, *others = [unit for unit in UNITS if arms[0].first.figures(unit) != Figures()]
    compared, settings = analysis.compared_on(data), analysis.settings
    seeds = any(len(arm.runs) > 1 for arm in arms)
    columns = [head.format(settings.iwae_samples) for head in FIELDS]
    blocks: list[Block] = [
        heading(f"{data}: {UNITS[unit]}"),
        all_arms(arms, unit, columns),
        *map(Text, how_to_read(arms, unit, seeds, settings)),
    ]
    if compared:
        blocks += [
            heading(f"{data}: differences from the baselines, {UNITS[unit]}"),
            from_baselines(compared, arms, seeds),
        ]
    for other in others:
        blocks += [heading(f"{data}: {UNITS[other]}"), all_arms(arms, other, columns)]
    if any(run.evaluation.calibration for arm in arms for run in arm.runs):
        blocks += [heading(f"{data}: particles of the filter"), calibrations(arms)]
    if seeds:
        mark = " **(collapsed)**"
        rows = [
            [
                run.name + mark * bool(run.evaluation.collapsed),
                str(run.run.seed),
                *cells(run.figures(unit)),
            ]
            for arm in arms
            for run in arm.runs
        ]
        blocks += [
            heading(f"{data}: single runs, {UNITS[unit]}"),
            Table(["run", "seed", *columns], rows),
        ]
    return blocks


def cells(figures: Figures) -> list[str]:
    return [estimate(getattr(figures, field)) for field in FIELDS.values()]


def calibrations(arms: list[Arm]) -> Table:
    """What was picked for each run, and the bound of training text that it was picked by."""
    rows = [
        [
            run.name,
            *(str(found.particles), f"{found.proposal:g}", "yes" if found.converged else "no"),
            f"{found.gain:.5f}, error {found.error:.5f}",
            ", ".join(f"{k}: {bound:.4f}" for k, bound in found.curve.items()),
        ]
        for arm in arms
        for run in arm.runs
        if (found := run.evaluation.calibration)
    ]
    return Table(CALIBRATION_HEAD, rows)


def all_arms(arms: list[Arm], unit: str, columns: list[str]) -> Table:
    gap = unit == "bits_per_token" and arms[0].gap is not None
    head = [
        "arm",
        "kind",
        "κ, bits",
        "H",
        "parameters",
        "trained tokens",
        "seeds",
        "scored, tokens/s",
        *["gap to exact, nats/token"] * gap,
        *columns,
    ]
    rows = [
        [
            name(arm),
            ", ".join(filter(None, (arm.kind, arm.run.model, arm.warmup))),
            arm.first.kappa,
            str(arm.first.latent_bits or "–"),
            f"{arm.parameters:,}",
            f"{arm.trained_tokens:,}",
            str(len(arm.runs)),
            f"{arm.tokens_per_second:,.0f}",
            *[estimate(arm.gap)] * gap,
            *cells(arm.figures(unit)),
        ]
        for arm in arms
    ]
    return Table(head, rows)


def how_to_read(arms: list[Arm], unit: str, seeds: bool, settings: EvaluationConfig) -> list[str]:
    first = arms[0].first.evaluation
    texts = [
        f"Means {'over seeds ' * seeds}± one standard error over {first.documents:,} held-out "
        f"documents{'; spread: sample standard deviation over seeds' * seeds}."
    ]
    if bounds := [bound for arm in arms if (bound := arm.figures(unit).filtering)]:
        largest = max(bounds, key=lambda bound: bound.monte_carlo or 0)
        half = max(bound.half_variance or 0.0 for bound in bounds)
        if settings.particles == AUTO:
            what = (
                f"of the mean probability of {settings.filters} filters, whose particles and "
                "proposal were found on training text"
            )
        else:
            chosen = f"with {settings.proposal} of the encoder’s logits"
            what = (
                f"mean of {settings.filters} filters of {settings.particles} particles, z proposed "
                f"{PROPOSALS.get(settings.proposal, chosen)}"
            )
        texts.append(
            f"[Filtering bound](../../docs/measurement/filtering_bound.md): {what}. Its own "
            f"error, over repeated filters, is at most {largest.monte_carlo or 0:.5f} (error over "
            f"documents: {largest.se:.5f}). Half the variance of its log estimate, roughly its "
            f"distance from the NLL, is at most {half:.5f}."
        )
    if unit == "bits_per_byte":
        texts.append("Quote bits per byte: tokenizers differ, bytes do not.")
    if exact := first.bits_per_token.exact:
        texts.append(
            f"The process that made these data has {exact} bits per token on the same documents. "
            "No model can do better than its entropy on average. Gap: NLL or filtering bound "
            "minus −log probability under the process, document by document."
        )
    return texts


def from_baselines(comparisons: list[Comparison], arms: list[Arm], seeds: bool) -> Table:
    """A row for each arm that has a comparison, side by side those with every baseline."""
    controls = [arm for arm in arms if any(c.other is arm for c in comparisons)]
    head = ["arm", "parameters"]
    for control in controls:
        head.append(f"from {control.name} ({control.parameters:,} parameters)")
        head += ["other error over seeds"] * seeds + ["verdict"]
    rows = []
    for arm in arms:
        against = {c.other.name: c for c in comparisons if c.arm is arm}
        cells = [arm.name, f"{arm.parameters:,}"]
        for c in (against.get(control.name) for control in controls):
            cells.append(in_words(c) if c else "–")
            cells += [other_error(c) if c else "–"] * seeds
            cells.append(f"{verdict(c)} ({c.words})" if c else "–")
        rows += [cells] * bool(against)
    return Table(head, rows)
