"""Spreads over seeds on record (conf/spreads.csv), and what an experiment's seeds can show by them.

`ftlab spreads` adds a finished experiment's, one row for each arm that has several seeds.
"""

import csv
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from io import StringIO
from math import isinf, isnan, log, sqrt
from pathlib import Path
from statistics import stdev
from typing import Annotated

from pydantic import Field, PositiveInt, TypeAdapter, ValidationError

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
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Spread:
    """An arm on record. The errors over documents belong to its difference from the plain baseline;
    a plain baseline's row has none.
    """

    experiment: str
    data: str
    model: str
    arm: str
    kappa_bits: float | None  # None: a baseline
    trained_tokens: PositiveInt
    unit: str
    seeds: PositiveInt
    spread: Amount  # of the bounds over seeds, sample standard deviation
    scored_tokens: PositiveInt
    documents: PositiveInt
    document_error: Amount | None = None  # without the interaction with seeds
    interaction: Amount | None = None  # the standard error over documents that one seed adds

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

    def over_seeds(self, scored_tokens: int, interaction: float) -> float:
        """The spread for another number of tokens, with which the interaction in it changes."""
        fewer = self.scored_tokens / scored_tokens
        return sqrt(max(0.0, self.spread**2 + interaction**2 * (fewer - 1)))


def read_record() -> list[Spread]:
    """What is on record; an empty list without the file. Raises UserError if it cannot be read."""
    if not RECORD.exists():
        return []
    mend = f"correct it, or delete {RECORD} and type `ftlab spreads` again"
    try:
        lines = RECORD.read_text(encoding="utf-8").splitlines()
        rows = [{k: v or None for k, v in row.items()} for row in csv.DictReader(lines)]
        return TypeAdapter(list[Spread]).validate_python(rows)
    except ValidationError as error:
        first = error.errors()[0]
        row, *key = first["loc"]
        where = f"line {int(row) + 2}, {'.'.join(map(str, key))}"
        raise UserError(f"{RECORD}, {where}: {first['msg']}; {mend}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{RECORD}: {error}; {mend}") from None


def spread_of(arm: Arm, arms: list[Arm], experiment: str) -> Spread:
    """The row of a finished arm with several seeds; ``arms`` are all arms on its data."""
    plain = next((other for other in controls(arm, arms) if other.plain), None)
    error = interaction = None
    if plain and not isnan((found := over_documents(arm, plain, arm.unit)).error):
        error = sqrt(max(0.0, found.error**2 - found.interaction))
        interaction = sqrt(found.interaction / (1 / len(arm.runs) + 1 / len(plain.runs)))
    return Spread(
        experiment=experiment,
        data=arm.run.data,
        model=arm.run.model,
        arm=arm.name,
        kappa_bits=arm.run.kappa_bits,
        trained_tokens=arm.trained_tokens,
        unit=arm.unit,
        seeds=len(arm.runs),
        spread=stdev(arm.bounds()),
        scored_tokens=arm.first.evaluation.tokens,
        documents=arm.first.evaluation.documents,
        document_error=error,
        interaction=interaction,
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
        raise UserError(f"{experiment.name}: no arm has several seeds, so no spread is known")
    others = [each for each in read_record() if each.experiment != experiment.name]
    text = StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(Spread)], lineterminator="\n")
    writer.writeheader()
    for each in (*others, *new):
        row = asdict(each)
        for name in ("spread", "document_error", "interaction"):
            row[name] = None if row[name] is None else f"{row[name]:.3g}"
        writer.writerow(row)
    write_file(RECORD, text.getvalue())
    print(f"{RECORD}: of {experiment.name} {', '.join(each.arm for each in new)}")


def on_record(spec: RunSpec, arm: str, record: list[Spread]) -> Spread | None:
    """The spread to expect of an arm: of one with the same data and model, preferably with the same
    κ, then with the same name, then with the closest number of tokens. A baseline does not stand
    for a Free Transformer, nor the other way round.
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
            each.kappa_bits != run.kappa_bits,
            each.arm != arm,
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
    plain = {  # the first one of each family
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
            "arm, compared with": f"{arm}, {other}",
            "seeds": str(seeds),
            "spreads": "not on record",
            "recorded as": "",
            "finds": "",
            "effect": "–" if effect is None else f"{effect:g}",
            "seeds to find it": "",
            "seeds to rule it out": "",
        }
        if mine and theirs:
            # null: all held-out tokens, as many as were recorded
            scored = settled(specs[arm]).tokens or mine.scored_tokens
            assert isinstance(scored, int), "`settled` leaves none to the run"
            documents = mine.over_documents(scored) or theirs.over_documents(scored)
            interaction = mine.interaction or theirs.interaction or 0.0
            pair = [each.over_seeds(scored, interaction) for each in (mine, theirs)]
            others = [
                each.over_seeds(scored, interaction)
                for name, each in known.items()
                if each and family[name] == family[arm] and name not in (arm, other)
            ]
            spreads = (*pair, *sorted(others))  # so that alike arms are simulated once
            found = detectable(spreads, seeds, documents, effect or 0.0)
            row["spreads"] = f"{pair[0]:.2g}, {pair[1]:.2g}"
            row["recorded as"] = f"{mine.experiment}/{mine.arm}, {theirs.experiment}/{theirs.arm}"
            row["finds"] = "–" if isnan(found) else f"{found:.2g}"
            if effect is not None:
                row["seeds to find it"] = in_words(seeds_to_detect(effect, spreads, documents))
                row["seeds to rule it out"] = in_words(seeds_to_equate(effect, spreads, documents))
        yield row


def in_words(seeds: float) -> str:
    return f"over {MAX_SEEDS}" if isinf(seeds) else f"{seeds:g}"
