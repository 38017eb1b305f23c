"""What z says of the target, in a table of arms and in sentences made from the figures."""

from collections.abc import Callable
from math import isnan, nan
from statistics import fmean, stdev
from typing import Any

from ftmodel.model.objective import LN2
from pipelines.artifacts.results import Estimate, Measured
from pipelines.report.arms import Arm
from pipelines.report.comparison import Comparison, contrast
from pipelines.report.verdicts import in_words, listed

LATENT = {  # places of figures in metrics["latent"], by the names that they have in tables
    "start_bits": ("start_bits",),
    "start_entropy_bits": ("start_entropy",),
    "aggregate_at_least_bits": ("aggregate_bits", "at_least"),
    "aggregate_at_most_bits": ("aggregate_bits", "at_most"),
    "reconstruction_valid": ("reconstruction", "valid"),
    "reconstruction_distance": ("reconstruction", "distance"),
    "reconstruction_noise": ("reconstruction", "noise"),
}
LITTLE = 0.1  # bits: of less, no half is told
SAYS = (
    "z is drawn from the encoder for sequences made anew by the process. Top: how many bits of "
    "where the target starts are known from z of the input positions 0 to t alone, without decoder "
    "and text. It is a lower bound: a probe guesses the start from z, and z may say more in a way "
    "that it does not read. Dotted is κ (t + 1), what free bits alone can have paid for; what lies "
    "above it was paid for by KL beyond κ. Left: the KL relative to the position, 0, that predicts "
    "the target’s first character; the target is shaded. Right: how far the z of a position is "
    "from fair bits to one who has read the z before it, a lower bound, too; under the prior it is "
    "0. Thin lines are seeds, thick ones their means."
)
LOSES = (
    "Generation draws z from the uniform prior; the decoder was trained with z that an encoder "
    "drew for a text. Reconstructions have such z, of sequences made anew, and are set against "
    "those by the distance of the two targets and the overlap (Jaccard) of the places of !. Where "
    "they are valid and generations are not, the decoder can do its part, and z is at fault: the "
    "prior draws such as it seldom met. How far the two are apart is the KL of the aggregate "
    "posterior, the distribution over all texts of a whole sequence of z, from the prior: at least "
    "what the probe tells from fair bits, at most the gap of the ELBO bound to the exact NLL, "
    "summed over a sequence. Figures are means, ± is the spread over seeds. Valid shares are "
    "compared by the rule for arms, once for each Free Transformer; these are not among the "
    "comparisons counted above."
)


def latent_figures(one: Measured) -> dict[str, float | None]:
    """What was measured of z, by flat names; None where it could not be measured."""
    latent = one.metrics.get("latent")
    return {name: at(latent, *place) for name, place in LATENT.items()} if latent else {}


def at(found: Any, *place: str) -> float | None:
    for key in place:
        found = (found or {}).get(key)
    return found


def explained(arms: list[Arm]) -> list[Arm]:
    """The Free Transformers of which all seeds were asked what z says of the target."""
    return [arm for arm in arms if all(one.metrics.get("latent") for one in arm.runs)]


def over(arm: Arm, key: str) -> list[float]:
    """A figure of z of each seed; empty unless all of them have it."""
    found = [latent_figures(one).get(key) for one in arm.runs]
    present = [value for value in found if value is not None]
    return present if len(present) == len(found) else []


def valid(arm: Arm) -> list[float]:
    """Share of valid sequences generated with z from the prior, of each seed."""
    return [one.metrics["fresh"]["valid"] for one in arm.runs]


def cell(values: list[float], decimals: int) -> str:
    """Mean and, of several seeds, ± their sample standard deviation."""
    if not values:
        return "–"
    spread = f" ± {stdev(values):.{decimals}f}" if len(values) > 1 else ""
    mean = round(fmean(values), decimals) or 0.0  # not −0.00
    return f"{mean:.{decimals}f}{spread}".replace("-", "−")


def estimate_cell(found: Estimate | None) -> str:
    if found is None:
        return "–"
    spread = "" if isnan(found.spread) else f" ± {found.spread:.4f}"
    return f"{found.mean:.4f}{spread}".replace("-", "−")


def aggregate_cell(arm: Arm) -> str:
    """Between at least and at most, bits a sequence."""
    ends = [cell(over(arm, f"aggregate_at_{end}_bits"), 1) for end in ("least", "most")]
    return "–" if ends == ["–", "–"] else " to ".join(ends)


def exact_cell(arm: Arm) -> str:
    """The process's own, of the documents that all seeds are scored on."""
    found = arm.figure("exact")
    return f"{LN2 * found.mean:.4f}" if found else "–"


ROWS: dict[str, Callable[[Arm], str]] = {
    "seeds": lambda arm: str(len(arm.runs)),
    "exact NLL of the process, nats/token": exact_cell,
    "NLL or IWAE bound − exact, nats/token": lambda arm: estimate_cell(arm.gap),
    "ELBO bound − exact, nats/token": lambda arm: estimate_cell(arm.elbo_gap),
    "KL, bits/token": lambda arm: estimate_cell(arm.figure("kl")),
    "start known from z, at least, bits": lambda arm: cell(over(arm, "start_bits"), 2),
    "aggregate posterior from the prior, bits/sequence": aggregate_cell,
    "prior generations: valid": lambda arm: cell(valid(arm), 3),
    "posterior reconstructions: valid": lambda arm: cell(over(arm, "reconstruction_valid"), 3),
    "– distance of targets, characters": lambda arm: cell(over(arm, "reconstruction_distance"), 1),
    "– overlap of noise": lambda arm: cell(over(arm, "reconstruction_noise"), 2),
}


def target_table(arms: list[Arm]) -> list[list[str]]:
    """A column for each arm, the baselines among them, and a row for each figure."""
    head = ["", *(arm.name for arm in arms)]
    return [head, *([name, *map(row, arms)] for name, row in ROWS.items())]


def start_sentence(arm: Arm) -> list[str]:
    """How much of the start z tells, and by which position it tells half of that."""
    known, entropy = over(arm, "start_bits"), over(arm, "start_entropy_bits")
    if not known or not entropy:
        return []
    bits = max(0.0, fmean(known))  # information is never less
    said = f"{arm.name}: z alone tells at least {bits:.2f} of the {entropy[0]:.2f} bits "
    said += "of where the target starts"
    if bits > LITTLE and (half := half_known(arm)) is not None:
        said += f", half of that by position {half}"
    several = f" (mean of {len(known)} seeds, spread {stdev(known):.2f})" if len(known) > 1 else ""
    return [f"{said}{several}."]


def half_known(arm: Arm) -> int | None:
    """The first position by which half of what all z tell of the start is known, by the mean over
    seeds; None if some seed lacks a figure.
    """
    curves = [one.details.get("latent", {}).get("start_bits") or [None] for one in arm.runs]
    if any(bits is None for curve in curves for bits in curve):
        return None
    means = [fmean(values) for values in zip(*curves, strict=True)]
    return next((t for t, bits in enumerate(means) if bits >= means[-1] / 2), None)


def prior_sentences(arms: list[Arm]) -> list[str]:
    """Where prior generations are worse than posterior reconstructions, with the gap between the
    aggregate posterior and the prior; and where not.
    """
    compared = [(arm, against_posterior(arm)) for arm in arms if over(arm, "reconstruction_valid")]
    worse = [(arm, c) for arm, c in compared if c.verdict == "lower"]
    same = {
        verdict: [arm for arm, c in compared if c.verdict == verdict]
        for verdict in ("no difference", "higher", "not known")
    }
    words = {
        "no difference": "Prior generations are not shown to be worse than posterior "
        "reconstructions: {}.",
        "higher": "Prior generations are valid more often than posterior reconstructions: {}.",
        "not known": "With a single seed no difference between prior generations and posterior "
        "reconstructions is claimed: {}.",
    }
    return [
        *(worse_sentence(arm, c) for arm, c in worse),
        *(words[v].format(listed(map(shares, group))) for v, group in same.items() if group),
    ]


def against_posterior(arm: Arm) -> Comparison:
    """Valid share with z from the prior minus that with z from the posterior, over seeds."""
    return contrast(arm, arm, "valid", valid(arm), over(arm, "reconstruction_valid"))


def shares(arm: Arm) -> str:
    posterior = fmean(over(arm, "reconstruction_valid"))
    return f"{arm.name} (valid {fmean(valid(arm)):.3f} against {posterior:.3f})"


def worse_sentence(arm: Arm, found: Comparison) -> str:
    said = (
        f"Prior generations are worse than posterior reconstructions: {shares(arm)}, "
        f"{in_words(found)} ({found.words})."
    )
    least, most = (over(arm, f"aggregate_at_{end}_bits") for end in ("least", "most"))
    if not least or not most:
        return f"{said} How far the aggregate posterior is from the prior was not measured."
    return (
        f"{said} The KL of the aggregate posterior from the prior is between {fmean(least):.1f} "
        f"and {fmean(most):.1f} bits a sequence; the mean KL of a single sequence’s z, which "
        f"contains it, is {sequence_kl(arm):.1f} bits."
    )


def sequence_kl(arm: Arm) -> float:
    """KL of a whole sequence of z, bits, mean over sequences and seeds."""
    kl, metrics = arm.figure("kl"), arm.first.metrics
    return kl.mean * metrics["tokens"] / metrics["documents"] if kl else nan
