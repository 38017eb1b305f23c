"""What makes a trained model another one than the same run's of before."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from ftmodel.config import Gradient, ModelConfig
from pipelines.artifacts.checkpoint import Preregistration, check_manifest
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.schema import Bound, Expectation
from pipelines.host.errors import UserError
from pipelines.host.pytorch import device_name
from pipelines.tracking.journal import run_params
from pipelines.train.core import segments as manifest_module
from pipelines.train.core.segments import differences, make_manifest
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.settings import each_changed, smoke
from tests.support.training import RUN

MODEL = "models.target_small"


@pytest.fixture
def made(monkeypatch):
    """The manifest of a run, whose parent has these weights."""

    def make(experiment, name=RUN, vocab_size=11, data="data", parent=None):
        identity = {"sha256": parent} if parent else {}
        monkeypatch.setattr(manifest_module, "parent_identity", lambda spec: identity)
        shards = SimpleNamespace(metadata=SimpleNamespace(vocab_size=vocab_size, hash=data))
        return make_manifest(RunSpec(experiment, name), shards)

    return make


@pytest.fixture
def experiment():
    """Smoke, whose models have a second name, so that a run may name another."""
    loaded = smoke()
    loaded.models |= {f"{name}_": preset for name, preset in loaded.models.items()}
    return loaded


def decides(key, run):
    """Whether a setting decides the weights of RUN, or what its curve has of them."""
    own = (f"runs.{RUN}.", f"models.{run.model}.")
    others = ("name", "compute.precision", "evaluation.every_tokens")
    return key.startswith(own) or key in others


@rejects(
    "checkpoint.settings_hash: «spec.experiment.compute.precision.value,→»", "another precision"
)
def test_exactly_the_settings_that_decide_weights_or_curve_are_in_the_hash(made, experiment):
    """Each setting of an experiment, changed alone. A model of another hash is not taken."""
    before = made(experiment)
    others = dict(each_changed(experiment))
    assert len(others) > 300
    for key, other in others.items():
        after = made(other)
        decisive = decides(key, experiment.runs[RUN])
        assert (after.spec_hash != before.spec_hash) == decisive, key
        if decisive and not key.startswith("evaluation"):
            with pytest.raises(UserError, match=r"not the run that params\.yaml describes"):
                check_manifest("last.ckpt", before, RunSpec(other, RUN))
        else:
            check_manifest("last.ckpt", before, RunSpec(other, RUN))


@rejects('segments.make_manifest: «"data": shards.metadata.hash,→»', "checkpoints of other data")
@rejects('segments.make_manifest: «parts["parent"]→_»', "another parent, the same run")
def test_the_name_the_data_the_parent_evaluation_in_the_loop_code_and_torch_are_in_it(
    made, experiment, monkeypatch
):
    experiment.runs["renamed"] = replace(experiment.runs[RUN])
    known = [
        made(experiment),
        made(experiment, "renamed"),
        made(experiment, vocab_size=12),
        made(experiment, data="other"),
        made(experiment, parent="weights"),
        made(experiment, parent="other weights"),
    ]
    for tokens in (5200, 10400):
        experiment.evaluation.every_tokens = tokens
        known.append(made(experiment))
    monkeypatch.setattr(manifest_module, "code_version", {"train": "another"}.__getitem__)
    known.append(made(experiment))
    monkeypatch.setattr("torch.__version__", "9.9")
    known.append(made(experiment))
    assert len({manifest.spec_hash for manifest in known}) == len(known)
    assert all(len(manifest.spec_hash) == 16 for manifest in known)


def test_a_design_comes_back_from_what_a_checkpoint_has_of_it_and_is_told_in_mlflow(made):
    words = {"inject": "kv_all", "map": "linear", "prior": "learned", "gradient": "score"}
    design = [f"runs.{RUN}.latent.{key}={value}" for key, value in words.items()]
    block = f"{MODEL}.architecture.latent_block=1"
    experiment = smoke(*design, f"runs.{RUN}.latent_bits=40", block)
    manifest = made(experiment)
    architecture = manifest.entry["architecture"]
    assert type(architecture["latent"]["gradient"]) is str, "no class in a checkpoint"
    config = ModelConfig(**architecture)
    assert config == RunSpec(experiment, RUN).config
    assert config.latent.gradient is Gradient.score and config.lower_blocks == 0
    params = run_params(manifest, experiment)
    assert {key: params[f"architecture.latent.{key}"] for key in words} == words


@arrives("compute", "workers")
def test_it_says_where_it_was_made_and_what_was_expected_then(made, experiment, monkeypatch):
    """It is the same run elsewhere, and with another expectation."""
    here = made(experiment)
    assert (here.device, here.preregistration) == (device_name(), Preregistration())
    stated = "Why?", [Expectation(RUN, "baseline", Bound.equivalent, "so", 0.5)]
    experiment.question, experiment.expectation = stated
    experiment.compute.workers = 2
    monkeypatch.setattr(manifest_module, "git_revision", lambda: "abc123")
    there = made(experiment)
    assert (there.device, there.git_revision) == (f"2 × {device_name()}", "abc123")
    assert there.preregistration == Preregistration(*stated)
    assert there.spec_hash == here.spec_hash


@rejects("segments.differences: «, **theirs.parts→»", "what only the earlier one has goes unnamed")
def test_what_differs_between_two_specifications_or_only_one_has_is_named(
    made, experiment, monkeypatch
):
    plain, child = made(experiment), made(experiment, parent="a" * 64)
    experiment.evaluation.every_tokens = 5200
    scored = made(experiment)
    assert differences(scored, plain) == ["evaluation.every_tokens (5200 then, none now)"]
    assert differences(plain, scored) == ["evaluation.every_tokens (none then, 5200 now)"]
    assert differences(plain, plain) == []
    assert differences(child, plain) == differences(plain, child) == ["parent"]
    monkeypatch.setattr("torch.__version__", "9.9")
    torch = plain.parts["torch"]
    assert differences(scored, made(experiment)) == [f"torch ({torch} then, 9.9 now)"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["runs.free_k1_8.seed=3", f"{MODEL}.architecture.ffn_width=16"], "seed, ffn_width"),
        ([f"{MODEL}.optim.lr=0.5"], "optim or compute.precision"),
        (["compute.precision=bf16"], "optim or compute.precision"),
    ],
)
def test_settings_that_differ_are_named(made, changes, words):
    assert differences(made(smoke()), made(smoke(*changes))) == [f"settings ({words})"]
