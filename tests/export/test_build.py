"""The command: a folder or one line, and nothing half-written."""

from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from gguf import GGUFReader, GGUFWriter
from mlflow import MlflowClient
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipelines.artifacts.checkpoint import Manifest, load_model
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.config.init_from import InitFrom
from pipelines.config.load import load_experiment
from pipelines.evaluate.stage import measure
from pipelines.export import build
from pipelines.export.build import READER, main, of_parent, writer
from pipelines.host.errors import UserError
from pipelines.host.files import checkpoint_path
from pipelines.tracking.store import store_uri
from tests.support import settings
from tests.support.commands import call
from tests.support.gguf_files import shards_of, tokenizer_of
from tests.support.mutants import rejects
from tests.support.results import change, figures, run, write_experiment
from tests.support.training import RUN, train_run

TEXT_RUN = "text_free_k1_2"


def evaluate(name):
    experiment = load_experiment()
    experiment.evaluation.tokens = 520
    measure(RunSpec(experiment, name))


def test_a_run_on_the_target_task(workspace, capsys):
    """Its card has the NLL, and MLflow names the folder."""
    train_run("baseline")
    with pytest.raises(UserError, match=r"has no model baseline: `dvc repro evaluate@baseline`"):
        main("baseline", "hf", mlflow=True)
    with pytest.raises(UserError, match=r"^baseline: its tokens are symbols of a process, but "):
        main("baseline", "gguf", None, None)
    assert not list(workspace.glob("exports/**/*"))
    evaluate("baseline")
    capsys.readouterr()
    call("export", "baseline", "--to", "hf", "--mlflow")
    folder = workspace / "exports/smoke/baseline"
    *_, written, kept = capsys.readouterr().out.splitlines()
    assert written == f"exports/smoke/baseline: baseline, for {READER['hf']}"
    _, manifest = load_model(checkpoint_path("smoke", "baseline"))
    text = "K>_____"
    tokens = AutoTokenizer.from_pretrained(folder)(text).input_ids
    assert len(tokens) == len(text), "a row begins as it does"
    assert [path.name for path in folder.parent.iterdir()] == ["baseline"]
    card = (folder / "README.md").read_text()
    assert "| held-out NLL, bits per token | " in card and manifest.data_hash in card
    assert "seed 0" in card and "top_k" in card
    with pytest.raises(UserError, match=r"^--out: exports/smoke/baseline already exists$"):
        main("baseline", "hf", None, None)
    uri, _, words = kept.partition(": ")
    assert words == "in MLflow, the tag `exported` names it"
    model = MlflowClient(store_uri()).get_logged_model(uri.removeprefix("models:/"))
    assert (workspace / model.tags["exported"]).samefile(folder)


@rejects("export.build.of_parent: if i != «vocabulary.end_of_text→None»", "the same end twice")
def test_what_a_run_keeps_of_how_its_parent_chats(tmp_path, monkeypatch):
    """Also by way of another run; 11 is beyond the vocabulary."""
    starts = {"a": InitFrom(hf="llama"), "b": InitFrom(run="a"), "c": InitFrom()}
    runs = {name: SimpleNamespace(init_from=start) for name, start in starts.items()}
    shards = SimpleNamespace(metadata=SimpleNamespace(end_of_text=3, vocab_size=11))
    settings = [(True, [3, 5, 7, 11]), (False, [])]
    monkeypatch.setattr(build, "chat_settings", lambda path: settings[0])

    def found(name):
        return of_parent(
            SimpleNamespace(run=runs[name], experiment=SimpleNamespace(runs=runs)), shards
        )

    assert found("c") == ([], "")
    for name in ("a", "b"):
        ends, note = found(name)
        assert ends == [5, 7] and note.startswith("The chat template of llama is left out: ")
    del settings[0]
    assert found("b") == ([], "")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    ends, note = found("a")
    assert ends == [] and note.endswith("are left out: llama: neither a folder nor a .gguf file")


def test_a_format_must_be_named_and_mlflow_is_yes_or_no(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^Missing option '--to'"):
        call("export", "baseline")
    with pytest.raises(UserError, match=r"^params.yaml is missing"):
        call("export", "baseline", "--to", "hf", "--mlflow")


def test_a_free_transformer(workspace, capsys):
    """With a card that calls bounds bounds; what cannot be had leaves nothing."""
    with pytest.raises(UserError, match=f"{RUN}/last.ckpt: no checkpoint here"):
        main(RUN, "hf", None, None)
    with pytest.raises(UserError, match=r"^--tokens: .* has no checkpoint at 7 tokens, only at "):
        main(RUN, "hf", 7, None)
    undo = settings.change(f"runs.{RUN}.budgets", [5200])
    with pytest.raises(UserError, match=f"{RUN}/5200.ckpt: no checkpoint here"):
        main(RUN, "hf", 5200, None)
    undo()
    train_run()
    with pytest.raises(UserError, match=f"^{RUN}: a Free Transformer is not a Llama"):
        main(RUN, "gguf", None, "there")
    assert not list(workspace.glob("*there*")) and not list(workspace.glob("exports/**/*"))
    evaluate(RUN)
    capsys.readouterr()
    main(RUN, "hf", None, None)
    assert capsys.readouterr().out.endswith(f"{READER['hf']}, with trust_remote_code\n")
    folder = workspace / "exports/smoke" / RUN
    ours, manifest = load_model(checkpoint_path("smoke", RUN))
    card = (folder / "README.md").read_text()
    for words in (
        f"κ = 1/8 bits per token, H = {ours.config.latent_bits} |",
        f"hash {manifest.data_hash} |",
        "seed 0 |",
        "comes from the prior",
        "| filtering bound on the held-out NLL, bits per token | ",
        "| ELBO bound on the held-out NLL, bits per token | ",
        "## What must not be compared",
    ):
        assert words in card, words
    assert "| held-out NLL" not in card, "the NLL of a Free Transformer is not known"
    assert [path.name for path in folder.parent.iterdir()] == [RUN]


@rejects("export.build.main: «Path(partly) / target.name→target»", "an export written in place")
@rejects("export.build.main: .«exists→is_dir»", "an export over what is there")
@torch.no_grad()
def test_a_run_on_text_as_gguf(workspace, monkeypatch):
    """What is there is not written over, and a disk that is full leaves nothing."""
    settings.change(f"runs.{TEXT_RUN}.kappa_bits", None)
    train_run(TEXT_RUN)
    main(TEXT_RUN, "gguf", None, None)
    file = workspace / f"exports/smoke/{TEXT_RUN}.gguf"
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    ours, manifest = load_model(checkpoint_path("smoke", TEXT_RUN))
    theirs = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    tokens = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    ids = tokens("def f(x):\n    return x", return_tensors="pt").input_ids
    assert ids[0, 0] == Shards(Path("data/tokens/stdlib")).metadata.end_of_text
    expected = ours.logits(ours(ids).hidden)
    assert (theirs(ids).logits - expected).abs().max() < 1e-4 * expected.std()
    fields = GGUFReader(file).fields
    assert fields["general.data_hash"].contents() == manifest.data_hash
    before = file.read_bytes()
    with pytest.raises(UserError, match=f"^--out: exports/smoke/{TEXT_RUN}.gguf already exists$"):
        main(TEXT_RUN, "gguf", None, None)
    assert file.read_bytes() == before

    def full(writer):
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(GGUFWriter, "write_tensors_to_file", full)
    with pytest.raises(OSError, match="No space left"):
        main(TEXT_RUN, "gguf", None, "other.gguf")
    assert not list(workspace.glob("*other.gguf*"))


@pytest.mark.parametrize(
    ("name", "value"), [("qkv_bias", True), ("qk_norm", True), ("rope_factor", 2.0)]
)
def test_what_a_llama_of_llama_cpp_does_not_have_is_no_gguf(make_model, name, value):
    model = make_model(latent_bits=0, **{name: value})
    with pytest.raises(ValueError, match=f"{name}.* exported only by --to hf$"):
        writer("gguf", None, None, 0, model, None, {})


@torch.no_grad()
def test_rows_that_pad_a_vocabulary_are_exported_and_never_generated(
    make_model, tmp_path, monkeypatch
):
    monkeypatch.setattr(build, "model_card", lambda *_: "# a model\n")
    words, padding = tokenizer_of("trained"), {"model.embed_tokens.weight": torch.randn(3, 16)}
    design = {"latent": {"per": "sequence"}}  # which a baseline does not read
    model = make_model(latent_bits=0, vocab_size=words.vocab_size, **design)
    writer("hf", None, None, 0, model, shards_of(words), padding)(tmp_path / "m")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    rows = torch.cat((model.embedding.weight, *padding.values()))
    assert theirs.get_input_embeddings().weight.equal(rows)
    never = theirs.generation_config.suppress_tokens
    assert never == [*range(words.vocab_size, words.vocab_size + 3)]
    with pytest.raises(ValueError, match=r"^latent\.per: sequence cannot be exported"):
        writer("hf", None, None, 0, make_model(**design), None, {})


def test_the_card_of_a_smaller_budget_has_its_own_bound(tmp_path, monkeypatch):
    folder = write_experiment(tmp_path / "e", {"base": run()}, {"base": 0.5})
    monkeypatch.chdir(folder)
    at = {"tokens": 2000, "listed": 2000, "annealed": True}
    change(
        folder,
        "base",
        "evaluation.json",
        budgets=[at | {"bits_per_token": figures(0.75, 0.01, False)}],
    )
    manifest = Manifest("tiny", "base", {}, {}, 11, data_hash="d", spec_hash="s")
    for tokens, bound in ((2000, "0.7500"), (6500, "0.5000")):
        lines = build.bound_lines(load_experiment(), manifest, tokens)
        assert f"| held-out NLL, bits per token | {bound} ± 0.0100 |" in lines


TABLE = f"""
| | |
|---|---|
| arm | baseline |
| data | text, hash d |
| trained on | 2,000 tokens, seed 3 |
| started from | PARENT, sha256 1 |
| architecture | n_layers 2, d_model 8, ffn_width 16, context 65, head_width 6 |
| revision of the code | not recorded |
| trained on a | not recorded |
| tested with | transformers {" and ".join(build.TESTED)} |
| held-out NLL | not evaluated |

`generation"""


@pytest.mark.parametrize(
    ("parent", "words"), [({"hf": "models/x"}, "models/x"), ({"run": "p"}, "run p")]
)
def test_the_table_of_a_card_has_no_gaps(tmp_path, monkeypatch, parent, words):
    monkeypatch.chdir(tmp_path)
    shape = {"n_layers": 2, "d_model": 8, "norm_eps": 0.1, "ffn_width": 16, "context": 65}
    shape |= {"head_width": 6, "latent_block": None, "latent_bits": 0}
    run = {"data": "text", "seed": 3, "kappa_bits": None, "extra_blocks": 0}
    manifest = Manifest("tiny", "base", run, shape, 11, "d", "s", parent=parent | {"sha256": "1"})
    table = TABLE.replace("PARENT", words)
    assert table in build.model_card(SimpleNamespace(name="tiny"), manifest, 2000)
    card = build.model_card(SimpleNamespace(name="tiny"), manifest, 2000, [5, 7], "No template")
    row = "| a text ends, too, with the parent's ids | 5, 7 |\n"
    assert table.replace("| arch", f"{row}| arch").replace("\n\n`", "\n\nNo template.\n\n`") in card
