"""Every number of Figure 4 and of what z says of the target, for others to compute with."""

from dataclasses import asdict
from math import isnan
from typing import Any

from pipelines.artifacts.results import Measured, training_seconds
from pipelines.report.sections.figure4 import Figures, Panel, Row
from pipelines.report.sections.target_latent import latent_figures

PAPER = "the paper"


def figure4_csv(rows: list[Row], paper: dict[float, Panel]) -> list[dict[str, Any]]:
    """A row for each run, at full precision, then the paper's, of the sequences that it prints.

    Shares, characters, nats per token, bits; seconds are of the training steps. None where a
    figure was not measured; no rows at all where no arm is on the target task.
    """
    ours = [
        {"arm": row.arm.name, "run": one.name, "kappa_bits": one.run.kappa_bits,
         "seed": one.run.seed, **known(found), **run_figures(one)}
        for row in rows
        for one, found in zip(row.arm.runs, row.seeds, strict=True)
    ]  # fmt: skip
    if not ours:
        return []
    theirs = [
        {"arm": PAPER, "kappa_bits": kappa, **known(panel.figures)}
        for kappa, panel in paper.items()
    ]
    return ours + theirs


def known(figures: Figures) -> dict[str, float | None]:
    return {key: None if isnan(value) else value for key, value in asdict(figures).items()}


def run_figures(one: Measured) -> dict[str, Any]:
    gap, elbo_gap = one.estimate("gap_nats_per_token"), one.estimate("elbo_gap_nats_per_token")
    kl = one.figure("kl")
    return {
        "groups": one.metrics["fresh"]["groups"],
        "group_size": one.metrics["fresh"]["group_size"],
        "gap_nats_per_token": gap and gap.mean,
        "elbo_gap_nats_per_token": elbo_gap and elbo_gap.mean,
        "kl_bits_per_token": kl and kl.mean,
        **latent_figures(one),
        "parameters": one.metrics["parameters"],
        "trained_tokens": one.metrics["trained_tokens"],
        "training_seconds": training_seconds(one.curve),
    }
