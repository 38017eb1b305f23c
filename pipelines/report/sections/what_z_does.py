"""What z does, in tables: its worth, z of other texts, pinned z, and one z per sequence. Below,
texts: their sizes, how much of the held-out part is in training, and continuations.
"""

from collections.abc import Sequence
from dataclasses import replace

from ftmodel.analysis.differences import LEVEL
from ftmodel.analysis.statistics import adjusted
from pipelines.artifacts.result_files import read_json
from pipelines.artifacts.results import Clusters, Estimate, Steering
from pipelines.artifacts.tokens.shards import Overlap, read_metadata
from pipelines.host.files import tokens_folder
from pipelines.report.analysis import Analysis
from pipelines.report.blocks import (
    MISSING,
    Block,
    Cell,
    Entries,
    Samples,
    Table,
    Text,
    explained,
    heading,
    table,
)
from pipelines.report.sections import titled
from pipelines.report.wording import count, estimate, number, p_value


@titled("What z is worth")
def use_of_z(analysis: Analysis) -> Sequence[Block]:
    return table(
        {
            "arm": use.arm.name,
            "data": use.arm.run.data,
            "κ": Cell(use.arm.first.kappa),
            "KL": estimate(use.kl),
            "use of z": estimate(use.use),
            "waste": estimate(use.waste),
            "recovery": Cell(number(use.recovery, 2)),
        }
        for use in analysis.uses.values()
    )


@titled("Swapping z between texts")
def swap(analysis: Analysis) -> Sequence[Block]:
    return table(
        {
            "run": run.name,
            "κ": Cell(run.kappa),
            "texts": Cell(f"{found.texts:,}"),
            "reconstruction CE, own z": estimate(found.own),
            "z of the prior − own": estimate(found.prior_minus_own),
            "z of another text − own": estimate(found.other_minus_own),
            "own z permuted − own": estimate(found.permuted_minus_own),
        }
        for run in analysis.runs
        if (found := run.evaluation.swap)
    )


@titled("Does a pinned z steer generation?")
def steering(analysis: Analysis) -> Sequence[Block]:
    measured = [(run, found) for run in analysis.runs if (found := run.evaluation.steering)]
    if all(run.baseline for run, _ in measured):
        return []
    tests = {run.name: found.p_value for run, found in measured if found.p_value is not None}
    ps = dict(zip(tests, adjusted([*tests.values()]), strict=True))
    return table(
        {
            "run": run.name,
            "κ": Cell(run.kappa),
            "distance, same z": estimate(found.same),
            "distance, different z": estimate(found.different),
            "different ÷ same": estimate(found.ratio),
            "permuted z: mean": Cell(number(found.null_mean)),
            "95 % below": Cell(number(found.null_95)),
            "p": Cell(p_value(found.p_value)),
            "adjusted p": Cell(p_value(ps.get(run.name))),
            "steers": judged(found, ps.get(run.name), "prefix" if run.run.random_prefix else "z"),
        }
        for run, found in measured
    )


def judged(found: Steering, p: float | None, pinned: str) -> str | Cell:
    """What p says, adjusted for all runs."""
    if p is None or found.ratio is None:
        return MISSING
    return f"{pinned} steers" if p < LEVEL and found.ratio.mean > 1 else "not shown"


@titled("One latent code per sequence")
def sequence_z(analysis: Analysis) -> Sequence[Block]:
    measured = [(run, z) for run in analysis.runs if (z := run.evaluation.sequence_z)]
    rows, shares = list[Entries](), list[Entries]()
    for run, z in measured:
        steps = [f"{100 * step.share:.0f} % of bits" for step in measured[0][1].path]
        for text, first, changes in (
            ("first text", z.own, [step.start for step in z.path]),
            ("other text", z.other, [step.end for step in z.path]),
            ("first text, random bits", z.own, [step.random for step in z.path]),
        ):
            row: Entries = {
                "run": run.name,
                "κ": Cell(run.kappa),
                "cross-entropy of": text,
                "with the first z": estimate(first),
            }
            rows.append(row | dict(zip(steps, map(estimate, changes), strict=True)))
        if z.half and z.half_random and z.half_minus_random:
            shares.append(
                {
                    "run": run.name,
                    "half of the bits": in_percent(z.half, 0),
                    "as many random bits": in_percent(z.half_random, 0),
                    "difference": in_percent(z.half_minus_random, 0),
                }
            )
    blocks: list[Block] = [*table(rows)]
    if apart := [(run.name, z.clusters) for run, z in measured if z.clusters]:
        blocks += [*explained("Whether z tells files apart"), *of_clusters(apart)]
    if shares:
        blocks += [*explained("Gain from half of the bits"), *table(shares)]
    return blocks


def in_percent(share: Estimate, decimals: int) -> Cell:
    cell = estimate(Estimate(100 * share.mean, 100 * share.se), decimals)
    if cell.error:
        return replace(cell, error=f"{cell.error} %")
    return replace(cell, value=f"{cell.value} %")


def of_clusters(tests: list[tuple[str, Clusters]]) -> list[Table]:
    """Whether z tells files apart, by the p-values of all runs."""
    rows = list[Entries]()
    ps = adjusted([clusters.p_value for _, clusters in tests])
    for (name, clusters), p in zip(tests, ps, strict=True):
        apart = p < LEVEL and clusters.same.mean > clusters.different.mean
        also = f", {p:.3g} adjusted for {len(ps)} runs" if len(ps) > 1 else ""
        rows.append(
            {
                "run": name,
                "of one file": in_percent(clusters.same, 1),
                "of two files": in_percent(clusters.different, 1),
                "95 % below": Cell(f"{100 * clusters.null_95:.1f} percentage points"),
                "p": f"p = {clusters.p_value:.3g}{also}",
                "tells files apart": "yes" if apart else "not shown",
            }
        )
    return table(rows)


@titled("Data")
def corpora(analysis: Analysis) -> Sequence[Block]:
    blocks: list[Block] = []
    for data, arms in analysis.by_data.items():
        if arms[0].first.source == "text":
            folder = tokens_folder(data)
            lines = [
                f"- {name}: {count(split.documents, 'document')}, {count(split.tokens, 'token')}, "
                f"{count(split.bytes, 'byte')}"
                for name, split in read_metadata(folder).splits.items()
            ]
            lines.append(f"- {read_json(folder / 'overlap.json', Overlap, 'tokenize')}")
            blocks += [heading(data), Text("\n".join(lines))]
    return blocks


@titled("Text samples")
def text_samples(analysis: Analysis) -> Sequence[Block]:
    """Continuations of held-out prompts, by the first seed of each arm."""
    blocks: list[Block] = []
    for arm in analysis.arms:
        if arm.first.details.generations and not arm.first.on_target:
            blocks.append(analysis.heading(arm, arm.name))
            for sample in arm.first.details.generations:
                blocks += [Samples("prompt", sample.prompt), Samples("sample", sample.fresh[0])]
    return blocks
