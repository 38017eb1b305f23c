"""Runs that start from a parent."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file

from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.checkpoint import load_model
from pipelines.artifacts.llama_files import WEIGHTS
from pipelines.artifacts.paths import checkpoint_path
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.errors import UserError
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.init_from import InitFrom
from pipelines.config.load import load_experiment
from pipelines.export import model_card
from pipelines.export.build import main as export, writer
from pipelines.train.core import parent as parent_module
from pipelines.train.core.manifest import differences, make_manifest
from pipelines.train.core.parent import copy_parent, start_from_parent
from tests.support.arrivals import arrives
from tests.support.kills import killed
from tests.support.mutants import rejects
from tests.support.training import RUN, same, tracked_runs, train, train_run
from tests.support.workspace import enter


def decoder(weights):
    return {name: w for name, w in weights.items() if not name.startswith("model.latent.")}


@pytest.fixture(scope="module")
def trained_parent(tokenized, tmp_path_factory):
    """Folder and weights of run baseline, of which the folder `llama` is an export."""
    with pytest.MonkeyPatch.context() as patch:
        folder = enter(tokenized, tmp_path_factory.mktemp("parent"), patch)
        weights, _ = train_run("baseline")
        export("baseline", "hf", None, "llama")
    return folder, weights


@pytest.fixture
def parent(trained_parent, tmp_path, monkeypatch):
    """The weights of the parent, in a copy of its folder."""
    folder, weights = trained_parent
    shutil.copytree(folder, tmp_path / "copy", symlinks=True)
    monkeypatch.chdir(tmp_path / "copy")
    return weights


@arrives("init_from", "run hf copied_lr")
def test_copied_weights_have_a_learning_rate_of_their_own(parent, capsys):
    """At 0 the decoder stays its parent's to the bit, and the latent is trained; a child of the
    exported folder is the same run but for its parent's name.
    """
    found, _ = train_run(init_from=InitFrom(run="baseline", copied_lr=0.0))
    assert same(decoder(found), parent)
    said = capsys.readouterr().err
    assert "nats per token before the first step" in said and "with z from the prior" in said
    _, manifest = load_model(checkpoint_path("smoke", RUN))
    assert manifest.parent["run"] == "baseline" and len(manifest.parent["sha256"]) == 64
    _, runs = tracked_runs()
    tracked = next(run for run in runs if run.info.run_name == RUN)
    assert tracked.data.metrics["start/parent"] == pytest.approx(
        tracked.data.metrics["start/prior"], rel=0.2
    )
    assert tracked.data.params["parent.sha256"] == manifest.parent["sha256"]
    assert tracked.data.params["init_from.run"] == "baseline"
    rows = model_card.of_run(load_experiment(), manifest, 10_400)
    assert f"| started from | run baseline, sha256 {manifest.parent['sha256']} |" in rows
    assert "| started from | random weights |" in Path("llama/README.md").read_text()
    shutil.rmtree("resume")
    from_folder, _ = train_run(init_from=InitFrom(hf="llama", copied_lr=0.0))
    assert same(from_folder, found)
    start = fresh_start(InitFrom(run="baseline"))
    latent = {f"model.{name}": w for name, w in start.items() if name.startswith("latent.")}
    changed = [name for name, w in latent.items() if not torch.equal(w, found[name])]
    assert changed == [*latent], "all of the latent is trained"


def child(init_from, name=RUN):
    experiment = load_experiment()
    experiment.runs[name].init_from = init_from
    return RunSpec(experiment, name)


def fresh_start(init_from, name=RUN):
    spec = child(init_from, name)
    shards = spec.shards()
    torch.manual_seed(0)
    model = FreeTransformer(spec.config, shards.metadata.vocab_size)
    start_from_parent(model, spec, shards)
    return model.state_dict()


@arrives("init_from", "latent_rms copy_encoder")
@arrives("run", "seed kappa_bits")
@rejects("parent.start_from_parent: «documents→None»,", "a new latent scaled across documents")
def test_a_new_latent_is_scaled_with_the_masks_of_training(workspace, monkeypatch):
    experiment = load_experiment()
    run = experiment.runs["text_free_k1_2"]
    run.init_from = InitFrom(run="text_baseline", latent_rms=0.3, copy_encoder=False)
    run.seed, run.kappa_bits = 5, 0.75
    experiment.models[run.model].architecture.document_mask = True
    spec, begun, stream = RunSpec(experiment, "text_free_k1_2"), Mock(), Mock(wraps=generator)
    monkeypatch.setattr(parent_module, "generator", stream)
    monkeypatch.setattr(parent_module, "copy_parent", lambda *_: (True, {}))
    monkeypatch.setattr(parent_module, "begin_latent", begun)
    shards = spec.shards()
    model = FreeTransformer(spec.config, shards.metadata.vocab_size)
    start_from_parent(model, spec, shards)
    stream.assert_called_once_with(5, Purpose.START)
    _, tokens, *told, documents = begun.call_args.args
    assert told == [0.75, 0.3, False]
    text = [i for document in shards.documents("train") for i in document[:-1].tolist()]
    assert tokens.flatten().tolist() == text[: parent_module.SAMPLE]
    assert documents is not None
    assert torch.equal(documents, (tokens == shards.metadata.end_of_text).cumsum(1))
    assert documents.max() > 0


def test_a_baseline_goes_on_from_its_parent(parent):
    start = fresh_start(InitFrom(run="baseline"), "baseline")
    assert same({f"model.{name}": w for name, w in start.items()}, parent)


def test_the_latent_of_a_parent_is_taken_over(trained, monkeypatch):
    monkeypatch.chdir(trained.folder)
    start = fresh_start(InitFrom(run=RUN), "free_k1")
    assert same({f"model.{name}": w for name, w in start.items()}, trained.weights)


@rejects('manifest.make_manifest: «parts["parent"]→_»', "another parent, the same run")
def test_another_parent_is_another_run(parent):
    spec = child(InitFrom(hf="llama"))
    before = make_manifest(spec, spec.shards())
    weights = load_file(Path("llama", WEIGHTS))
    weights["model.norm.weight"] += 1
    save_file(weights, Path("llama", WEIGHTS))
    after = make_manifest(spec, spec.shards())
    assert after.spec_hash != before.spec_hash
    assert differences(before, after) == ["parent"]


def edit(**changes):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


DAMAGE = [
    (shutil.rmtree, r"^llama: neither a folder nor a \.gguf file$"),
    (edit(vocab_size=4096), r"^llama: model\.embed_tokens\.weight: .* expected \(4096, "),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
def test_a_parent_that_does_not_fit_is_one_line(parent, damage, words):
    damage(Path("llama"))
    with pytest.raises(UserError, match=words):
        train(child(InitFrom(hf="llama")))
    assert not list(Path("checkpoints").glob(f"*/{RUN}"))


@rejects("Checkpoints.on_load_checkpoint: «self.padding =→»", "padding lost by a resumed training")
def test_the_padding_of_a_vocabulary_goes_from_parent_to_child_to_export(parent):
    """Through a training that is resumed, too."""
    name = "model.embed_tokens.weight"
    weights = load_file(Path("llama", WEIGHTS))
    ids, width = weights[name].shape
    more = torch.randn(5, width)
    save_file(weights | {name: torch.cat((weights[name], more))}, Path("llama", WEIGHTS))
    edit(vocab_size=ids + 5)(Path("llama"))
    changes = {"init_from": InitFrom(hf="llama"), "tokens": 3 * 520}
    with killed(2, checkpoint=1):
        train_run("baseline", **changes)
    train_run("baseline", **changes)
    spec = child(InitFrom(run="baseline"))
    shards = spec.shards()
    _, padding = copy_parent(FreeTransformer(spec.config, ids), spec, shards)
    assert padding.keys() == {name} and torch.equal(padding[name], more)
    trained, manifest = load_model(checkpoint_path("smoke", "baseline"))
    writer("hf", spec.experiment, manifest, 1560, trained, shards, padding)(Path("again"))
    assert torch.equal(load_file(Path("again", WEIGHTS))[name][ids:], more)
    assert json.loads(Path("again/config.json").read_text())["vocab_size"] == ids + 5
    generation = json.loads(Path("again/generation_config.json").read_text())
    assert generation["suppress_tokens"] == [*range(ids, ids + 5)]


def test_a_run_whose_parent_is_not_trained_says_which(workspace):
    with pytest.raises(UserError, match="`dvc repro train@baseline` trains the parent"):
        train(child(InitFrom(run="baseline")))
