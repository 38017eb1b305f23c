"""Checks of an experiment that types cannot make; each message starts with the dotted key.

Limits on every setting come first (numbers are finite and exact, texts are UTF-8), then names, then
the rules for each arm and run, and last what concerns several of them.
"""

import sys
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from itertools import pairwise
from math import isfinite
from typing import Any

from ftmodel.config import check_limits
from ftmodel.schedule import decay_start
from ftmodel.synthetic import PROCESSES
from pipelines.config import derived
from pipelines.config.arms import FAMILY, arm_of_each, family_of, parent_fits
from pipelines.config.data import ProcessData, TextData
from pipelines.config.derived import suite_runs, trainings
from pipelines.config.schema import (
    NAME,
    Arm,
    Bound,
    Experiment,
    OptimizerName,
    Schedule,
    Strategy,
)
from pipelines.host.errors import not_one_of

MAX_EXACT_INTEGER = 1 << 53  # as a double, which JSON, charts and MLflow have
MAX_NAME_CHARACTERS = 120  # a file's name has at most 255 bytes, and some are made of two names
CODE_FOLDER = "code"  # of data/inputs, where each data entry has a folder of its name


def check(experiment: Experiment) -> None:
    """All checks that types cannot make; raises ValueError starting with the dotted key."""
    check_values("", experiment)
    for group in ("data", "models", "arms", "runs"):
        entries = getattr(experiment, group)
        if not entries and group != "arms":
            raise ValueError(f"{group}: empty; an experiment needs at least one entry")
        check_entry_names(group, entries)
    for name, data in experiment.data.items():
        if isinstance(data, TextData):
            check_entry_names(f"data.{name}.parts", data.parts)
    check_name("name", experiment.name)
    if CODE_FOLDER in experiment.data:
        raise ValueError(
            f"data.{CODE_FOLDER}: the folder data/inputs/{CODE_FOLDER} is taken by the code"
        )
    check_entry_names("suite.tasks", experiment.suite.tasks)
    for group in ("arms", "runs"):  # arms first: a mistake is where it was made
        for name, run in getattr(experiment, group).items():
            for rule in RULES:
                rule(experiment, f"{group}.{name}", run)
    check_arms(experiment)
    check_proposal(experiment)
    check_derived(experiment)
    check_statement(experiment)


def check_values(key: str, value: Any) -> None:
    """Raise ValueError, starting with the dotted key, for a value that no setting may have, or that
    a dataclass within ``value`` refuses by a field's limits or its method ``validate``.
    """
    typed = is_dataclass(value)
    if typed:
        entries = [(field.name, getattr(value, field.name)) for field in fields(value)]
    elif isinstance(value, dict):
        entries = [*value.items()]
    elif isinstance(value, list):
        entries = [(str(i), entry) for i, entry in enumerate(value)]
    else:
        check_value(key, value)
        return
    for name, entry in entries:
        below = f"{key}.{name}" if key else name
        if isinstance(entry, dict | list) and not typed:
            # OmegaConf lets these through as entries of typed lists and mappings
            raise ValueError(f"{below}: {shortened(str(entry))} is not a single value")
        check_values(below, entry)
    if typed:
        check_part(key, value)


def check_part(key: str, part: Any) -> None:
    try:
        check_limits(part)
        if hasattr(part, "validate"):
            part.validate()
    except ValueError as error:
        raise ValueError(f"{key}.{error}".removeprefix(".")) from None


def check_value(key: str, value: Any) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{key}: {value} is not a finite number")
    if isinstance(value, int) and abs(value) > MAX_EXACT_INTEGER:
        raise ValueError(f"{key}: {shortened(str(value))} is outside −2^53 … 2^53")
    if isinstance(value, str) and not isinstance(value, Enum):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{key}: not text: it cannot be written as UTF-8") from None
        if "\0" in value:
            raise ValueError(f"{key}: has a NUL character")


def shortened(text: str, length: int = 40) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text)} characters)"


def too_large(value: Any, key: str = "") -> Iterator[str]:
    """Say what is wrong with each integer in nested mappings and lists that no float can hold."""
    if isinstance(value, dict | list):
        for name, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from too_large(entry, f"{key}.{name}" if key else str(name))
    elif isinstance(value, int) and abs(value) > sys.float_info.max:
        yield f"{key}: '{shortened(str(value))}' is too large for a number"


def check_name(key: str, name: Any) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"{key}: a name is lower-case letters, digits and single underscores (DVC and the "
            f"overrides give the dot a meaning of its own), not {shortened(str(name))!r}"
        )
    if len(name) > MAX_NAME_CHARACTERS:
        raise ValueError(
            f"{key}: a name has at most {MAX_NAME_CHARACTERS} characters, since files and folders "
            "are named after it"
        )


def check_entry_names(group: str, entries: dict[str, Any]) -> None:
    for name in entries:
        check_name(f"{group}.{shortened(str(name))}", name)


def check_arms(experiment: Experiment) -> None:
    """Raise ValueError for arms and seeds that no run uses: they would be ignored silently."""
    arms_of_runs = {run.rpartition("_s")[0] for run in experiment.runs}
    for name in experiment.arms:
        if name not in arms_of_runs:
            raise ValueError(
                f"arms.{name}: not used by any run; add +runs.{name} instead, or set "
                "runs: ${each_seed:${arms},${seeds}}"
            )
    if experiment.seeds and not experiment.arms:
        raise ValueError("seeds: given without arms; set each run's seed instead")


def check_proposal(experiment: Experiment) -> None:
    """Raise ValueError for a proposal without effect: one z per sequence needs no filter."""
    latent = [
        derived.model_config(experiment, run).latent
        for run in experiment.runs.values()
        if run.kappa_bits is not None
    ]
    proposal = experiment.evaluation.proposal
    if proposal is not None and latent and all(design.one_code for design in latent):
        raise ValueError(
            f"evaluation.proposal: {proposal:g} has no effect, because every Free "
            "Transformer here has one latent code per sequence, which needs no particle filter"
        )


def check_derived(experiment: Experiment) -> None:
    """Raise ValueError if a derived list is wrong. DVC makes a stage of each entry: a run that is
    missing would silently not be trained or scored.
    """
    settings = asdict(experiment)
    computed: dict[str, dict[str, Any]] = {
        "trainings": trainings(settings["runs"], experiment.name),
        "suite_runs": suite_runs(settings["runs"], settings["data"], settings["suite"]),
    }
    for group, entries in computed.items():
        for name in {**settings[group], **entries}:
            found = settings[group].get(name, "left out")
            wanted = entries.get(name, "left out")
            if found != wanted:
                raise ValueError(
                    f"{group}.{name}: {found}, not {wanted}; conf/config.yaml makes this list of "
                    "the runs"
                )


def check_statement(experiment: Experiment) -> None:
    """Raise ValueError for a question or an expectation that the report cannot answer."""
    check_not_blank("question", experiment.question)
    arm_of = arm_of_each(experiment.runs)
    families = {arm_of[name]: family_of(run, arm_of) for name, run in experiment.runs.items()}
    stated: dict[frozenset[str], str] = {}
    for i, expectation in enumerate(experiment.expectation):
        key = f"expectation.{i}"
        arm, than = expectation.arm, expectation.than
        for name, wanted in (("arm", arm), ("than", than)):
            if wanted not in families:
                raise ValueError(f"{key}.{name}: {not_one_of(wanted, families)}")
        if arm == than:
            raise ValueError(f"{key}.than: {than!r} is the arm itself")
        if families[arm] != families[than]:
            theirs, ours = (", ".join(map(str, filter(None, families[a]))) for a in (than, arm))
            raise ValueError(
                f"{key}.than: {than} ({theirs}) cannot be compared with {arm} ({ours}): "
                f"{', '.join(FAMILY)} must be the same"
            )
        check_not_blank(f"{key}.because", expectation.because)
        if expectation.bound is Bound.equivalent and expectation.smallest_effect is None:
            raise ValueError(
                f"{key}.bound: equivalent needs a smallest_effect, such as 0.01 bits: what "
                "difference would matter"
            )
        if earlier := stated.get(frozenset((arm, than))):
            raise ValueError(f"{key}: {earlier} already compares {arm} and {than}")
        stated[frozenset((arm, than))] = key


def check_not_blank(key: str, text: str | None) -> None:
    if text is not None and not text.strip():
        raise ValueError(f"{key}: empty; leave it out or fill it in")


def names_are_known(experiment: Experiment, key: str, run: Arm) -> None:
    for group, wanted in (("data", run.data), ("models", run.model)):
        if wanted not in (known := getattr(experiment, group)):
            field_name = group.removesuffix("s")
            raise ValueError(f"{key}.{field_name}: {not_one_of(wanted, known)}")


def design_exists(experiment: Experiment, key: str, run: Arm) -> None:
    check_part(key, derived.model_config(experiment, run))
    if run.kappa_bits is not None:
        return
    for name, value in run.design_settings.items():
        raise ValueError(f"{key}.{name}: {value}, but a baseline has no latent")


def free_bits_see_the_batch(experiment: Experiment, key: str, run: Arm) -> None:
    over = derived.model_config(experiment, run).latent.free_bits
    parts = experiment.compute.accumulate
    if run.kappa_bits is not None and over.needs_whole_batch and parts > 1:
        raise ValueError(
            f"compute.accumulate: {parts}, but {key} has free_bits {over}, which averages over a "
            "whole batch; compute.workers may split it"
        )


def kappa_fits_the_latent(experiment: Experiment, key: str, run: Arm) -> None:
    if run.kappa_bits is None:
        return
    preset = experiment.models[run.model].architecture
    bits = preset.latent_bits if run.latent_bits is None else run.latent_bits
    where = key if run.latent_bits is not None else f"models.{run.model}.architecture"
    if not bits:
        raise ValueError(
            f"{key}.kappa_bits: a Free Transformer needs latent bits, but {where}.latent_bits is "
            "0; null makes a baseline"
        )
    if not 0 <= run.kappa_bits <= bits:
        raise ValueError(
            f"{key}.kappa_bits: {run.kappa_bits} is outside 0 … {bits}, {where}.latent_bits"
        )
    config = derived.model_config(experiment, run)
    # a document that is shorter than the context holds more bits per token; the KL to a learned
    # prior may be more than H
    bounded = config.latent.uniform_prior and not config.document_mask
    if bounded and run.kappa_bits > config.latent_capacity:
        raise ValueError(
            f"{key}.kappa_bits: {run.kappa_bits} is more than a token can carry: with latent.per "
            f"{config.latent.per}, the {bits} bits of a latent code are at most "
            f"{config.latent_capacity:.4g} bits per token"
        )


def batch_is_divisible(experiment: Experiment, key: str, run: Arm) -> None:
    compute, rows = experiment.compute, experiment.models[run.model].optim.batch_size
    if rows % (compute.accumulate * compute.workers):
        what = "workers" if rows % compute.workers else "accumulate"
        times = "" if rows % getattr(compute, what) else f" × compute.workers {compute.workers}"
        raise ValueError(
            f"compute.{what}: {getattr(compute, what)}{times} does not divide "
            f"models.{run.model}.optim.batch_size {rows}"
        )


def muon_has_whole_matrices(experiment: Experiment, key: str, run: Arm) -> None:
    name = experiment.models[run.model].optim.name
    if name is OptimizerName.muon and experiment.compute.strategy is Strategy.fsdp:
        raise ValueError(
            f"models.{run.model}.optim.name: muon needs whole matrices, which compute.strategy: "
            "fsdp shards; use ddp, or adamw"
        )


def held_out_evaluation_fits(experiment: Experiment, key: str, run: Arm) -> None:
    every, batch = experiment.evaluation.every_tokens, derived.batch_tokens(experiment, run)
    if every is None:
        return
    if not batch <= every <= run.tokens:
        raise ValueError(
            f"evaluation.every_tokens: {every} is outside {batch} … {run.tokens}, a batch and all "
            f"tokens of {key}"
        )
    if experiment.compute.strategy is Strategy.fsdp:
        raise ValueError(
            f"evaluation.every_tokens: {every}, but compute.strategy is fsdp, whose model no "
            "worker can evaluate; null evaluates it after training alone"
        )


def tokens_make_a_batch(experiment: Experiment, key: str, run: Arm) -> None:
    batch = derived.batch_tokens(experiment, run)
    if run.tokens < batch:
        raise ValueError(f"{key}.tokens: {run.tokens} is less than one batch of {batch} tokens")


def settings_suit_the_side(experiment: Experiment, key: str, run: Arm) -> None:
    """A baseline has no κ and no hinge. A Free Transformer has none of a baseline's additions."""
    if run.kappa_bits is None:
        if run.kappa_warmup_steps:
            raise ValueError(
                f"{key}.kappa_warmup_steps: {run.kappa_warmup_steps}, but a baseline has no κ"
            )
        if run.beta != 1:
            raise ValueError(f"{key}.beta: {run.beta}, but a baseline has no hinge to weigh")
    else:
        if run.extra_blocks:
            raise ValueError(
                f"{key}.extra_blocks: {run.extra_blocks}, but only a baseline may have extra "
                "blocks; a Free Transformer has its encoder"
            )
        if run.random_prefix:
            raise ValueError(
                f"{key}.random_prefix: {run.random_prefix}, but only a baseline may have a random "
                "prefix; a Free Transformer has z"
            )
    if n := experiment.models[run.model].architecture.random_prefix:
        raise ValueError(
            f"models.{run.model}.architecture.random_prefix: {n}; set random_prefix of an arm"
        )


def budgets_rise(experiment: Experiment, key: str, run: Arm) -> None:
    batch = derived.batch_tokens(experiment, run)
    steps = [0, *(budget // batch for budget in run.budgets), run.tokens // batch]
    if any(later <= earlier for earlier, later in pairwise(steps)):
        raise ValueError(
            f"{key}.budgets: {run.budgets} must rise, from at least one batch of {batch} tokens "
            f"to less than the run's {run.tokens}"
        )


def warm_up_leaves_steps(experiment: Experiment, key: str, run: Arm) -> None:
    """Every budget outlasts the warm-up, whatever the schedule: before its peak, a learning rate
    trains a model that says nothing about its arm.
    """
    optim, least = experiment.models[run.model].optim, derived.budgets(experiment, run)[0]
    if run.kappa_bits is None and run.init_from.copied_lr == 0:
        return  # its parent's model, which nothing changes
    wsd = optim.schedule is Schedule.wsd
    falls = decay_start(optim.decay, least.steps) if wsd else least.steps - 1
    if falls < optim.warmup_steps:
        raise ValueError(
            f"{key}.{'budgets' if run.budgets else 'tokens'}: {least.listed} tokens are "
            f"{least.steps} steps, whose decay begins at {falls}, before "
            f"models.{run.model}.optim.warmup_steps {optim.warmup_steps} are over; train on more "
            "tokens, or warm up for fewer steps"
        )


def kappa_warm_up_fits(experiment: Experiment, key: str, run: Arm) -> None:
    least = derived.budgets(experiment, run)[0]
    if not 0 <= run.kappa_warmup_steps < least.steps:
        raise ValueError(
            f"{key}.kappa_warmup_steps: {run.kappa_warmup_steps} is outside 0 … {least.steps - 1}: "
            f"{least.listed} tokens are {least.steps} steps, and κ must be reached before the last"
        )


def architecture_fits_the_process(experiment: Experiment, key: str, run: Arm) -> None:
    data, architecture = experiment.data[run.data], experiment.models[run.model].architecture
    if not isinstance(data, ProcessData):
        return
    if architecture.document_mask:
        raise ValueError(
            f"models.{run.model}.architecture.document_mask: only for text; each row of "
            f"the data of {key} is a document already"
        )
    predicted = PROCESSES[data.source].row - 1
    if architecture.context != predicted:
        raise ValueError(
            f"models.{run.model}.architecture.context: {architecture.context} does not "
            f"fit the {data.source} task of {key}, whose sequences have {predicted} predicted "
            "tokens"
        )


RULES = [  # of a run or an arm, in this order: a later one may rest on an earlier one
    names_are_known,
    settings_suit_the_side,
    design_exists,
    kappa_fits_the_latent,
    batch_is_divisible,
    free_bits_see_the_batch,
    muon_has_whole_matrices,
    tokens_make_a_batch,
    held_out_evaluation_fits,
    budgets_rise,
    warm_up_leaves_steps,
    kappa_warm_up_fits,
    architecture_fits_the_process,
    parent_fits,
]
