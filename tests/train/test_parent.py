"""What a run takes over from its parent, on models without files."""

import json
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from ftmodel.conversion.llama import decoder_views, llama_config, llama_weights
from pipelines.artifacts.checkpoint import PADDING
from pipelines.artifacts.llama_files import Llama
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.init_from import InitFrom
from pipelines.host.errors import UserError
from pipelines.tokenize.vocabulary import train_bpe
from pipelines.train.core import parent as parent_module
from pipelines.train.core.parent import (
    copied,
    copy_llama,
    copy_parent,
    parent_identity,
    spelling,
    start_from_parent,
)
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.settings import smoke
from tests.support.training import RUN, same

WORDS = {f"word {i}": i for i in range(11)}


def tokenizer(*exchanged):
    """Of eleven words, of which some ids are exchanged."""
    words = WORDS | dict(zip(exchanged, map(WORDS.get, reversed(exchanged)), strict=True))
    return Tokenizer(WordLevel(words, unk_token="word 0"))


SHARDS = SimpleNamespace(
    folder="data", metadata=SimpleNamespace(vocab_size=11, end_of_text=3), tokenizer=tokenizer
)


def make_spec(init_from, name=RUN):
    experiment = smoke()
    experiment.runs[name].init_from = init_from
    return RunSpec(experiment, name)


def hash_of(*contents):
    return sha256(b"".join(sha256(content).digest() for content in contents)).hexdigest()


def test_a_parent_is_known_by_its_name_and_the_content_of_all_its_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = [Path("a"), Path("b")]
    monkeypatch.setattr(parent_module.llama_files, "model_files", {Path("llama"): files}.get)
    for file in files:
        file.write_bytes(file.name.encode())
    assert parent_identity(make_spec(InitFrom())) == {}
    found = parent_identity(make_spec(InitFrom(hf="llama")))
    assert found == {"hf": "llama", "sha256": hash_of(b"a", b"b")}
    spec = make_spec(InitFrom(run="baseline"))
    path = RunSpec(spec.experiment, "baseline").checkpoint()
    with pytest.raises(UserError, match=f"{path}: .* `dvc repro train@baseline` trains the parent"):
        parent_identity(spec)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"weights")
    assert parent_identity(spec) == {"run": "baseline", "sha256": hash_of(b"weights")}


@pytest.mark.parametrize(("bits", "parents"), [(0, 0), (0, 3), (3, 0), (3, 3)])
def test_a_latent_is_taken_over_where_both_models_have_one(
    make_model, monkeypatch, tmp_path, bits, parents
):
    """It begins anew where the parent alone lacks it. The parent hands on its padding."""
    monkeypatch.chdir(tmp_path)
    parent, model = make_model(seed=1, latent_bits=parents), make_model(latent_bits=bits)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    monkeypatch.setattr(parent_module, "load_model", lambda path: (parent, None))
    spec = make_spec(InitFrom(run="baseline"))
    path = RunSpec(spec.experiment, "baseline").checkpoint()
    path.parent.mkdir(parents=True)
    torch.save({PADDING: {"rows": torch.ones(1)}}, path)
    begins, padding = copy_parent(model, spec, SHARDS)
    assert begins == (bits > 0 and not parents)
    assert padding == {"rows": torch.ones(1)}
    for name, weight in model.state_dict().items():
        own = name.startswith("latent.") and not parents
        assert torch.equal(weight, (before if own else parent.state_dict())[name]), name


@pytest.fixture
def llama(make_model, monkeypatch):
    """Copy a Llama with these changes into a model; returns the model, it and its padding."""

    def copy(changes=(), its_tokenizer=None, padding=None):
        its_tokenizer = its_tokenizer or tokenizer()
        theirs, model = make_model(seed=1, latent_bits=0), make_model()
        config = llama_config(theirs.config, 11) | dict(changes)
        read = Llama(config, llama_weights(theirs, padding=padding), its_tokenizer)
        monkeypatch.setattr(parent_module.llama_files, "read_llama", lambda path: read)
        return model, theirs, copy_llama(model, "llama", SHARDS)

    return copy


def test_a_llama_is_copied_into_the_decoder(llama):
    model, theirs, padding = llama()
    assert same(decoder_views(model), decoder_views(theirs)) and padding == {}
    more = torch.ones(2, 16)
    name = "model.embed_tokens.weight"
    _, _, padding = llama({"vocab_size": 13}, padding={name: more})
    assert {*padding} == {name} and torch.equal(padding[name], more)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": 10}, "vocab_size: 10, but the tokenizer of data has 11 ids"),
        ({"vocab_size": "11"}, "vocab_size: '11', expected a whole number"),
        (
            {"vocab_size": 12},
            "model.embed_tokens.weight: (11, 16), expected (12, 16)",
        ),
        ({"rms_norm_eps": 0.5}, "its norm_eps is 0.5, but the run's architecture says 1e-05"),
        (
            {"max_position_embeddings": 15},
            "it was trained with up to 15 positions, but the run's architecture has a context of "
            "16",
        ),
        ({}, "its tokenizer is not that of data: the same ids differ"),
    ],
)
def test_a_llama_that_does_not_fit_is_one_line(llama, changes, words):
    with pytest.raises(UserError) as caught:
        llama(changes, None if changes else tokenizer("word 1", "word 2"))
    assert str(caught.value) == f"llama: {words}"


@rejects('parent.spelling: «model.get("merges")→None»', "other merges of the same tokens")
def test_a_tokenizer_is_told_by_its_tokens_and_merges_but_not_by_named_padding():
    trained = train_bpe([b"the then them these thesis"], 262, "<end>").tokenizer

    def spelled_by(change=lambda ids, merges: None, last="last"):
        spec = json.loads(trained.to_str())
        ids, merges = spec["model"]["vocab"], spec["model"]["merges"]
        ids[last] = 262
        change(ids, merges)
        return spelling(Tokenizer.from_str(json.dumps(spec)), 263)

    assert spelled_by(lambda ids, merges: merges.reverse()) != spelled_by()
    assert spelled_by(last="another") != spelled_by()
    assert spelled_by(lambda ids, merges: ids.update(padding=263)) == spelled_by()


class Windows:
    """Of consecutive numbers, modulo eleven, in which documents begin with a 3."""

    def __len__(self):
        return 5

    def batch(self, indices):
        return (indices[:, None] * 16 + torch.arange(17)) % 11


@arrives("init_from", "latent_rms copy_encoder")
@arrives("run", "seed kappa_bits")
@rejects("parent.start_from_parent: «documents→None»,", "a new latent scaled across documents")
@pytest.mark.parametrize(("sample", "count"), [(4, 1), (47, 2), (400, 5)])
@pytest.mark.parametrize(("bits", "begins"), [(0, False), (3, False), (3, True)])
@pytest.mark.parametrize("masked", [False, True])
def test_a_new_latent_and_losses_before_the_first_step_are_of_the_first_windows(
    make_model, monkeypatch, sample, count, bits, begins, masked
):
    """As many as a sample has tokens, with noise for the prior and for the encoder."""
    losses, begun, stream = Mock(), Mock(), Mock(wraps=generator)
    shards = SimpleNamespace(
        windows=lambda part, context: {("train", 16): Windows()}[part, context],
        metadata=SHARDS.metadata,
    )
    for name, value in {
        "SAMPLE": sample,
        "start_losses": losses,
        "begin_latent": begun,
        "generator": stream,
        "copy_parent": lambda *_: (begins, "padding"),
    }.items():
        monkeypatch.setattr(parent_module, name, value)
    model = make_model(latent_bits=bits, document_mask=masked)
    spec = make_spec(InitFrom(run="baseline", latent_rms=0.3, copy_encoder=False))
    spec.run.seed, spec.run.kappa_bits = 5, 0.75
    assert start_from_parent(model, spec, shards) == (losses.return_value, "padding")
    _, rows, noise, documents = losses.call_args.args
    assert torch.equal(rows, Windows().batch(torch.arange(count)))
    assert torch.equal(documents, (rows[:, :-1] == 3).cumsum(1)) if masked else documents is None
    if bits:
        assert noise.shape == (2, count, 16, 3)
        stream.assert_called_once_with(5, Purpose.START)
    else:
        assert noise is None
    assert begun.called == begins
    if begins:
        _, inputs, *told, masks = begun.call_args.args
        assert torch.equal(inputs, rows[:, :-1]) and masks is documents
        assert told == [0.75, 0.3, False]


@pytest.mark.parametrize(
    ("init_from", "latent"),
    [
        (InitFrom(), None),
        (InitFrom(hf="llama"), False),
        (InitFrom(run="baseline"), False),
        (InitFrom(run=RUN), True),
    ],
)
def test_all_but_a_latent_that_the_parent_lacks_is_copied(make_model, init_from, latent):
    model = make_model()
    names = {name for name, _ in model.named_parameters()}
    begun = {name for name in names if name.startswith("latent.")}
    expected = set() if latent is None else names if latent else names - begun
    assert copied(model, make_spec(init_from, "free_k1")) == expected
