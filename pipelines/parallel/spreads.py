"""Spreads over seeds on record (conf/spreads.csv), and what an experiment's seeds can show by them.

`ftlab spreads` adds a finished experiment's, one row for each arm that has several seeds.
"""

import csv
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from io import StringIO
from math import isinf, log, sqrt
from pathlib import Path
from statistics import stdev

from pydantic import TypeAdapter, ValidationError

from ftmodel.analysis.power import (
    MAX_SEEDS,
    DocumentSpread,
    detectable,
    seeds_to_detect,
    seeds_to_equate,
)
from pipelines.artifacts.run_results import read_runs
from pipelines.artifacts.run_spec import RunSpec
from pipelines.compare.arms import Arm, by_data, group_by_seed
from pipelines.compare.comparison import controls, over_documents
from pipelines.config import arms as planned_arms
from pipelines.config.load import load_experiment
from pipelines.config.schema import Experiment
from pipelines.evaluate.work import settled
from pipelines.host.errors import UserError
from pipelines.host.files import write_file

RECORD = Path("conf/spreads.csv")


@dataclass(frozen=True)
class Spread:
    """An arm on record. The errors over documents belong to its difference from its plain baseline,
    which has none.
    """

    experiment: str
    data: str
    model: str
    arm: str
    kappa_bits: float | None  # None: a baseline
    trained_tokens: int
    unit: str
    seeds: int
    spread: float  # of the bounds over seeds, sample standard deviation
    scored_tokens: int
    documents: int
    document_error: float | None = None  # without the interaction with seeds
    interaction: float | None = None  # the standard error over documents that one seed adds

    def over_documents(self, scored_tokens: int) -> DocumentSpread | None:
        """Errors for another number of tokens of documents of the same length."""
        if self.document_error is None or self.interaction is None:
            return None
        more = scored_tokens / self.scored_tokens
        return DocumentSpread(
            max(2, round(self.documents * more)),
            self.document_error / sqrt(more),
            self.interaction / sqrt(more),
        )


def read_record() -> list[Spread]:
    """What is on record; nothing without the file. Raises UserError if it cannot be read."""
    if not RECORD.exists():
        return []
    with RECORD.open(newline="") as file:
        rows = [{k: v or None for k, v in row.items()} for row in csv.DictReader(file)]
    try:
        return TypeAdapter(list[Spread]).validate_python(rows)
    except ValidationError as error:
        first = error.errors()[0]
        row, *key = first["loc"]
        where = f"line {int(row) + 2}, {'.'.join(map(str, key))}"
        raise UserError(f"{RECORD}, {where}: {first['msg']}; git has an earlier version") from None


def spread_of(arm: Arm, arms: list[Arm], experiment: str) -> Spread:
    """The row of a finished arm with several seeds, which is one of ``arms`` on its data."""
    plain = next((other for other in controls(arm, arms) if other.plain), None)
    error = interaction = None
    if plain:
        found = over_documents(arm, plain, arm.unit)
        error = sqrt(max(0.0, found.error**2 - found.interaction))
        interaction = sqrt(found.interaction / (1 / len(arm.runs) + 1 / len(plain.runs)))
    return Spread(
        experiment,
        arm.run.data,
        arm.run.model,
        arm.name,
        arm.run.kappa_bits,
        arm.trained_tokens,
        arm.unit,
        len(arm.runs),
        stdev(arm.bounds()),
        arm.first.evaluation.tokens,
        arm.first.evaluation.documents,
        error,
        interaction,
    )


def keep_spreads() -> None:
    """Put the spreads of the experiment of params.yaml on record, in place of its earlier ones."""
    experiment = load_experiment()
    groups = by_data(group_by_seed(read_runs(experiment))).values()
    new = [
        spread_of(arm, arms, experiment.name)
        for arms in groups
        for arm in arms
        if len(arm.runs) > 1
    ]
    if not new:
        raise UserError(f"{experiment.name}: no arm has a second seed, so it has no spread")
    others = [each for each in read_record() if each.experiment != experiment.name]
    text = StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(Spread)], lineterminator="\n")
    writer.writeheader()
    for each in (*others, *new):
        rounded = {
            k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in asdict(each).items()
        }
        writer.writerow(rounded)
    write_file(RECORD, text.getvalue())
    print(f"{RECORD}: {len(new)} arms of {experiment.name}; `ftlab plan` uses them")


def on_record(spec: RunSpec, arm: str, record: list[Spread]) -> Spread | None:
    """The spread to expect of an arm: one of the same data and model, of the same name or else κ
    if there is one, trained on about as many tokens. A baseline does not stand for a Free
    Transformer, nor the other way round.
    """
    run = spec.run
    alike = [
        each
        for each in record
        if (each.data, each.model, each.kappa_bits is None)
        == (run.data, run.model, run.kappa_bits is None)
    ]
    return min(
        alike,
        key=lambda each: (
            each.arm != arm,
            each.kappa_bits != run.kappa_bits,
            abs(log(each.trained_tokens / run.tokens)),
        ),
        default=None,
    )


def power_rows(experiment: Experiment) -> Iterator[dict[str, str]]:
    """What each comparison with a plain baseline, or of an expectation, can show."""
    record = read_record()
    names = planned_arms.group_by_seed(experiment.runs)
    arm_of = planned_arms.arm_of_each(experiment.runs)
    specs = {arm: RunSpec(experiment, runs[0]) for arm, runs in names.items()}
    family = {arm: planned_arms.family_of(spec.run, arm_of) for arm, spec in specs.items()}
    known = {arm: on_record(spec, arm, record) for arm, spec in specs.items()}
    plain = {
        family[arm]: arm
        for arm, spec in reversed(specs.items())
        if planned_arms.kind_of(spec.run) == "baseline"
    }
    stated = {(each.arm, each.than): each.smallest_effect for each in experiment.expectation}
    pairs = [(arm, plain[family[arm]]) for arm in specs if family[arm] in plain]
    for arm, other in dict.fromkeys([*(p for p in pairs if p[0] != p[1]), *stated]):
        seeds = min(len(names[arm]), len(names[other]))
        mine, theirs = known[arm], known[other]
        effect = stated.get((arm, other)) or experiment.smallest_effect
        row = {
            "arm, beside": f"{arm}, {other}",
            "seeds": str(seeds),
            "spreads": "not on record",
            "recorded": "",
            "finds": "",
            "effect": "–" if effect is None else f"{effect:g}",
            "seeds to find it": "",
            "to rule it out": "",
        }
        if mine and theirs:
            others = [
                each.spread
                for name, each in known.items()
                if each and family[name] == family[arm] and name not in (arm, other)
            ]
            spreads = (mine.spread, theirs.spread, *sorted(others))  # alike arms simulate once
            scored = settled(specs[arm]).tokens
            assert isinstance(scored, int), "`settled` leaves none to the run"
            documents = mine.over_documents(scored)
            row["spreads"] = f"{mine.spread:.2g}, {theirs.spread:.2g}"
            row["recorded"] = f"{mine.experiment}/{mine.arm}"
            row["finds"] = f"{detectable(spreads, seeds, documents):.2g}" if seeds > 1 else "–"
            if effect is not None:
                row["seeds to find it"] = count(seeds_to_detect(effect, spreads, documents))
                row["to rule it out"] = count(seeds_to_equate(effect, spreads, documents))
        yield row


def count(seeds: float) -> str:
    return f"over {MAX_SEEDS}" if isinf(seeds) else f"{seeds:g}"
