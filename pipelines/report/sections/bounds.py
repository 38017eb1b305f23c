"""The held-out bounds: all arms side by side, and against their baselines."""

from pipelines.artifacts.results import UNITS, Figures
from pipelines.compare.arms import Arm
from pipelines.compare.comparison import Comparison
from pipelines.config.schema import EvaluationConfig
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import NOT_COMPARABLE, Block, Section, Table, Text, explained, heading
from pipelines.report.verdicts import name
from pipelines.report.wording import estimate, in_words, other_error, verdict

Columns = dict[str, str]  # heads: fields of Figures


def section(analysis: Analysis) -> Section:
    blocks = [
        block
        for data, arms in analysis.by_data.items()
        for block in measured(data, arms, analysis.compared_on(data), analysis.settings)
    ]
    return Section("bounds", "Measurements", blocks)


def columns(settings: EvaluationConfig) -> Columns:
    others = {
        "ELBO bound": "elbo",
        f"IWAE-{settings.iwae_samples} bound": "iwae",
        "prior-sample bound": "prior",
        "KL": "kl",
        "reconstruction CE": "ce",
    }
    compared = {"NLL (exact)": "nll", "filtering bound": "filtering"}
    return compared | {label + NOT_COMPARABLE: field for label, field in others.items()}


def cells(shown: Columns, figures: Figures) -> list[str]:
    return [estimate(getattr(figures, field)) for field in shown.values()]


def measured(
    data: str, arms: list[Arm], compared: list[Comparison], settings: EvaluationConfig
) -> list[Block]:
    """All tables of one data set; the first of its units is the one to compare in."""
    unit, *others = [unit for unit in UNITS if arms[0].first.figures(unit) != Figures()]
    shown = columns(settings)
    seeds = any(len(arm.runs) > 1 for arm in arms)
    blocks: list[Block] = [
        heading(f"{data}: {UNITS[unit]}"),
        all_arms(arms, unit, shown),
        *how_to_read(arms, unit, seeds, settings),
    ]
    if compared:
        blocks += [
            heading(f"{data}: differences from the baselines, {UNITS[unit]}"),
            differences(compared, arms, seeds),
        ]
    for other in others:
        blocks += [heading(f"{data}: {UNITS[other]}"), all_arms(arms, other, shown)]
    if seeds:
        mark = " **(collapsed)**"
        rows = [
            [run.name + mark * bool(run.evaluation.collapsed), str(run.run.seed),
             *cells(shown, run.figures(unit))]
            for arm in arms
            for run in arm.runs
        ]  # fmt: skip
        blocks += [
            heading(f"{data}: single runs, {UNITS[unit]}"),
            Table(["run", "seed", *shown], rows),
        ]
    return blocks


def all_arms(arms: list[Arm], unit: str, shown: Columns) -> Table:
    gap = unit == "bits_per_token" and arms[0].gap is not None
    head = ["arm", "kind", "κ, bits", "H", "parameters", "trained tokens", "seeds",
            "scored, tokens/s", *["gap to exact, nats/token"] * gap, *shown]  # fmt: skip
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
            *cells(shown, arm.figures(unit)),
        ]
        for arm in arms
    ]
    return Table(head, rows)


def how_to_read(arms: list[Arm], unit: str, seeds: bool, settings: EvaluationConfig) -> list[Text]:
    first = arms[0].first.evaluation
    texts = [
        explained(
            f"Means {'over seeds ' * seeds}± one standard error over {first.documents:,} held-out "
            f"documents{'; spread: sample standard deviation over seeds' * seeds}. Scored: tokens "
            f"per second of the evaluation{', mean over seeds' * seeds}, on the machine that it "
            "ran on.",
            "what-may-be-compared",
        )
    ]
    bounds = [bound for arm in arms if (bound := arm.figures(unit).filtering)]
    if bounds:
        largest = max(bounds, key=lambda bound: bound.monte_carlo or 0)
        half = max(bound.half_variance or 0.0 for bound in bounds)
        known: dict[float | None, str] = {None: "by the default rule", 0: "from the prior"}
        proposal = known.get(settings.proposal, f"with {settings.proposal} of the encoder’s logits")
        texts.append(
            explained(
                f"Filtering bound: mean of {settings.filters} filters of {settings.particles} "
                f"particles, z proposed {proposal}. Its own "
                f"error, of repeated filters, is at most {largest.monte_carlo or 0:.5f}, where "
                f"the error over documents is {largest.se:.5f}; half the variance of a filter’s "
                f"log estimate, roughly its distance from the NLL, is at most {half:.5f}. KL and "
                "reconstruction cross-entropy are the two parts of the ELBO, and neither is a "
                "language-model loss.",
                "the-filtering-bound",
            )
        )
    if unit == "bits_per_byte":
        texts.append(
            Text("Tokenizers differ, bytes do not: bits per byte are the figures to quote.")
        )
    if exact := first.bits_per_token.exact:
        texts.append(
            explained(
                "The process that made these data is known, and no model can do better than its "
                f"entropy on average: the process itself has {exact} bits per token on the same "
                "documents. Gap: NLL or filtering bound minus −log probability under the process, "
                "document by document.",
                "processes-with-a-known-likelihood",
            )
        )
    return texts


def differences(comparisons: list[Comparison], arms: list[Arm], seeds: bool) -> Table:
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
        for control in controls:
            c = against.get(control.name)
            cells.append(in_words(c) if c else "–")
            cells += [other_error(c) if c else "–"] * seeds
            cells.append(f"{verdict(c)} ({c.words})" if c else "–")
        rows += [cells] * bool(against)
    return Table(head, rows)
