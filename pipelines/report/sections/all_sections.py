"""The figures of a report, each section with what it shows and how to read it."""

from dataclasses import dataclass, field

from matplotlib.figure import Figure

from pipelines.report import plots
from pipelines.report.arms import Arm, by_data, families
from pipelines.report.sections import arm_plots
from pipelines.report.sections.coin import coin_flip
from pipelines.report.sections.label import label_sentence, label_table
from pipelines.report.sections.target_latent import (
    LOSES,
    SAYS,
    explained,
    prior_sentences,
    start_sentence,
    target_table,
)
from pipelines.report.sections.target_plots import what_z_says


@dataclass(frozen=True)
class Section:
    title: str
    words: str
    figures: dict[str, tuple[Figure, str]]  # by file name: what is drawn, and its description
    first: bool = False  # whether it comes before the tables
    findings: list[str] = field(default_factory=list)  # sentences made from the figures
    table: list[list[str]] = field(default_factory=list)  # the head, then rows; a name first


def sections(arms: list[Arm]) -> list[Section]:
    """Those with something to draw; an arm has the same colour in all of them."""
    style = plots.styles(arm.name for arm in arms)
    made = [
        what_z_tells(arms, style),
        prior_and_posterior(arms),
        against_kappa(arms),
        by_budget(arms, style),
        by_samples(arms, style),
        coin(arms),
        label(arms),
        curves(arms, style),
        kl_per_bit(arms),
    ]
    return [section for section in made if section.figures or section.table]


def what_z_tells(arms: list[Arm], style: dict[str, plots.Style]) -> Section:
    figures = {}
    found = []
    for data, group in by_data(arms).items():
        if told := [a for a in explained(group) if all("latent" in r.details for r in a.runs)]:
            alt = (
                f"The target’s start as known from z, KL around it, and z from fair bits, on {data}"
            )
            figures[f"latent_{data}"] = (what_z_says(told, style), alt)
            found += [sentence for arm in told for sentence in start_sentence(arm)]
    return Section("What z says of the target", SAYS, figures, first=True, findings=found)


def prior_and_posterior(arms: list[Arm]) -> Section:
    shown, found = list[Arm](), list[str]()
    for group in by_data(arms).values():
        if told := explained(group):
            shown += [arm for arm in group if arm.baseline or arm in told]
            found += prior_sentences(told)
    table = target_table(shown) if shown else []
    return Section(
        "z from the prior, z from a text", LOSES, {}, first=True, findings=found, table=table
    )


def against_kappa(arms: list[Arm]) -> Section:
    figures = {}
    for family in families(arms):
        run = family[0].run
        kappas = {arm.run.kappa_bits for arm in family} - {None}
        if len(kappas) > 1:
            alone = len(families([arm for arm in arms if arm.run.data == run.data])) == 1
            name = f"kappa_{run.data}" + ("" if alone else f"_{run.model}_{run.tokens}")
            alt = f"Reconstruction CE, bound and prior-sample bound against κ on {run.data}"
            figures[name] = (arm_plots.against_kappa(family), alt)
    return Section(
        "How much should z tell?",
        "Held-out figures against κ; a dot is a seed, lines go through means, and baselines are "
        "level lines with a band over what their seeds span. Where κ is large, z may copy the "
        "text: reconstruction cross-entropy (grey; no language-model loss) then falls, while the "
        "bound and generation from the prior get worse. The paper (§ 4.4) meets this at 4 bits.",
        figures,
        first=True,
    )


def by_budget(arms: list[Arm], style: dict[str, plots.Style]) -> Section:
    figures = {}
    for data, group in by_data(arms).items():
        if with_budgets := [arm for arm in group if all("budgets" in r.metrics for r in arm.runs)]:
            figure = arm_plots.by_budget(with_budgets, style)
            figures[f"budgets_{data}"] = (figure, f"Held-out bound against tokens on {data}")
    return Section(
        "What further tokens buy",
        "Held-out bounds at each token budget. Full marks are models whose learning rate was "
        "annealed to zero for that budget; hollow ones are snapshots of a training that went on, "
        "and lie higher for that alone: compare like with like.",
        figures,
    )


def by_samples(arms: list[Arm], style: dict[str, plots.Style]) -> Section:
    figures = {}
    for data, group in by_data(arms).items():
        free = [arm for arm in group if all("iwae_by_samples" in r.metrics for r in arm.runs)]
        if free:
            figure = arm_plots.by_samples(free, style)
            figures[f"samples_{data}"] = (figure, f"IWAE bound against samples K on {data}")
    return Section(
        "How loose the bounds still are",
        "The IWAE bound with K samples of z, minus that with the most. Where a line is still "
        "falling at its end, the true NLL lies further below the bound, so that a Free Transformer "
        "is better than the tables say, by an amount that is not known.",
        figures,
    )


def coin(arms: list[Arm]) -> Section:
    figures = {}
    for data, group in by_data(arms).items():
        details = {
            one.name: one.details["coin"]
            for arm in group
            for one in arm.runs
            if "coin" in one.details
        }
        if details:
            alt = f"P(next flip is 1) at each flip of held-out sequences of {data}"
            figures[f"coin_{data}"] = (coin_flip(details), alt)
    return Section(
        "The paper’s coin",
        "A hidden fair coin decides a whole sequence of noisy copies of it. An autoregressive "
        "model has to infer it from the copies so far (the paper’s equation 2); a latent can say "
        "it at once (equation 1). The curves are a model’s probability that the next flip is 1. "
        "Without z and with z from the prior they are predictions. With z from its encoder they "
        "are not: that z has read the very flips that are predicted, so the curve shows what z "
        "says of the side, and not how well flips can be foreseen.",
        figures,
    )


def label(arms: list[Arm]) -> Section:
    figures = {}
    found = []
    for data, group in by_data(arms).items():
        if told := [arm for arm in group if all("label" in one.metrics for one in arm.runs)]:
            alt = f"Mutual information of each latent bit with the label on {data}"
            figures[f"label_{data}"] = (arm_plots.label_in_bits(told), alt)
            found += told
    return Section(
        "Does z carry the hidden label?",
        "Mutual information, in bits, between each latent bit and the label, 1 bit, that the text "
        "was made with; the model has never seen a label. It is estimated by counting, from one z "
        "a text, which comes out too high even where there is no relation, and more so for the "
        "best of many bits. It is therefore set against labels that are permuted, whose best bit "
        "is taken alike: 95 % of those lie below the dashed line, and p is the share that does as "
        "well. “All bits together” is what a guess of the label from the bits of all tokens tells "
        "(naive Bayes, counted on other texts), so that it finds information spread over bits or "
        "tokens. No z can tell more than the text itself. An arm’s verdict takes the better of "
        "the two p, doubled; of 20 runs without a relation, about one falls under 0.05.",
        figures,
        findings=[label_sentence(arm) for arm in found],
        table=label_table(found) if found else [],
    )


def curves(arms: list[Arm], style: dict[str, plots.Style]) -> Section:
    figures = {}
    for data, group in by_data(arms).items():
        runs = {one.name: one.curve for arm in group for one in arm.runs}
        names = {one.name: arm.name for arm in group for one in arm.runs}
        kappas = {
            a.first.name: a.run.kappa_bits for a in group if a.run.kappa_bits is not None
        }  # one dotted line an arm
        alt = f"Training bounds and KL against tokens on {data}"
        figures[f"curves_{data}"] = (plots.curves(runs, style, kappas, names), alt)
    return Section(
        "Training curves",
        "Solid: the training bound, cross-entropy for a baseline and cross-entropy + KL for a Free "
        "Transformer; a line for each seed. Thin dashed: a Free Transformer’s reconstruction "
        "cross-entropy, which is not a language-model loss.",
        figures,
    )


def kl_per_bit(arms: list[Arm]) -> Section:
    bits = {
        one.name: one.details["kl_per_bit"] for arm in arms if not arm.baseline for one in arm.runs
    }
    alt = "KL of each latent bit, bits per token"
    return Section(
        "How much each latent bit carries",
        "KL of each bit of z to a fair coin on held-out documents; 0 is an idle bit, 1 a bit that "
        "the encoder sets for certain. Bits have no names: bit 3 of two seeds may tell two things.",
        {"kl_per_bit": (plots.kl_per_bit(bits), alt)} if bits else {},
    )
