"""What makes a trained model another one than the same run's of before."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.atomic_files import ROOT
from pipelines.config.load import load_experiment
from pipelines.config.schema import OptimizerName, Precision, Strategy
from pipelines.train.core.manifest import differences, make_manifest
from tests.support.mutants import rejects


def manifest_of(change=lambda experiment, run: None, vocab_size=11, data="data"):
    experiment = load_experiment(ROOT / "params.yaml")
    name = next(name for name, run in experiment.runs.items() if run.kappa_bits)
    change(experiment, experiment.runs[name])
    shards = SimpleNamespace(metadata=SimpleNamespace(vocab_size=vocab_size, hash=data))
    return make_manifest(RunSpec(experiment, name), shards)


def spec_hash(*arguments, **others):
    return manifest_of(*arguments, **others).spec_hash


def of_run(**changes):
    return lambda experiment, run: vars(run).update(changes)


def of_model(part, **changes):
    return lambda experiment, run: vars(getattr(experiment.models[run.model], part)).update(changes)


def of_compute(**changes):
    return lambda experiment, run: vars(experiment.compute).update(changes)


def of_evaluation(**changes):
    return lambda experiment, run: vars(experiment.evaluation).update(changes)


@rejects("settings_hash: «asdict(spec.optim),→»", "checkpoints of another optimizer gone on from")
@rejects(
    "settings_hash: «spec.experiment.compute.precision.value,→»", "checkpoints of another precision"
)
@pytest.mark.parametrize(
    "change",
    [
        *(of_run(seed=7), of_run(kappa_bits=0.3), of_run(tokens=10**6), of_run(budgets=[10**5])),
        *(of_run(kappa_warmup_steps=3), of_run(beta=0.5), of_model("optim", latent_lr=2.0)),
        *(of_model("optim", name=OptimizerName.muon), of_model("optim", width_scaling=8)),
        *(of_model("optim", lr=0.5), of_model("optim", beta2=0.9), of_model("optim", clip=2.0)),
        *(of_model("architecture", norm_eps=0.1), of_model("architecture", latent_std=0.7)),
        *(of_compute(precision=Precision.bf16), of_evaluation(every_tokens=5200)),
    ],
)
def test_what_decides_weights_is_in_the_hash_and_so_is_evaluation_in_the_loop(change):
    """The latter changes no weight, but the curve, which a finished run would not get."""
    assert spec_hash(change) != spec_hash()


@rejects(
    'make_manifest: «"data": shards.metadata.hash,→»', "checkpoints of other data gone on from"
)
def test_data_and_the_version_of_torch_are_in_the_hash(monkeypatch):
    known = {spec_hash(), spec_hash(vocab_size=12), spec_hash(data="other")}
    monkeypatch.setattr("torch.__version__", "9.9")
    assert len(known | {spec_hash()}) == 4


@pytest.mark.parametrize(
    "change",
    [
        *(of_compute(accumulate=2), of_compute(workers=2), of_compute(compile=False)),
        *(of_compute(strategy=Strategy.fsdp), of_compute(activation_checkpointing=True)),
        of_evaluation(seed=3),
    ],
)
def test_what_decides_memory_and_speed_alone_is_not(change):
    assert spec_hash(change) == spec_hash()


@rejects("manifest.differences: «, **theirs.parts→»", "what only the earlier one has goes unnamed")
def test_what_only_one_of_two_specifications_has_is_a_difference_of_both():
    plain, scored = manifest_of(), manifest_of(of_evaluation(every_tokens=5200))
    assert differences(scored, plain) == ["evaluation.every_tokens (5200 then, none now)"]
    assert differences(plain, scored) == ["evaluation.every_tokens (none then, 5200 now)"]
    assert differences(plain, plain) == []
    child = replace(plain, parts=plain.parts | {"parent": "a" * 64})
    assert differences(child, plain) == differences(plain, child) == ["parent"]
