"""The command: a folder or one line, and nothing half-written."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ftmodel.model.mapper import pack_bits
from pipelines.artifacts.checkpoint import load_model
from pipelines.artifacts.paths import checkpoint_path
from pipelines.common.errors import UserError
from pipelines.config.load import load_experiment
from pipelines.evaluate.stage import measure
from pipelines.export.build import main
from tests.support.remote_code import load, modules_in
from tests.support.training import RUN, train_run


@torch.no_grad()
def test_a_run_on_the_target_task(workspace, tmp_path, capsys):
    """The whole run is evaluated and of that the card has the NLL."""
    train_run("baseline")
    experiment = load_experiment()
    experiment.evaluation.tokens = 520
    measure(experiment, "baseline")
    main("baseline", "hf", None, None)
    folder = workspace / "exports/smoke/baseline"
    assert capsys.readouterr().out.splitlines()[-1].startswith("exports/smoke/baseline: baseline")
    ours, manifest = load_model(checkpoint_path("smoke", "baseline"))
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    text = "K>_____"
    tokens = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt").input_ids
    assert tokens.shape == (1, len(text)), "a row begins as it does"
    expected = ours.logits(ours(tokens).hidden)
    assert (theirs(tokens).logits - expected).abs().max() < 1e-4 * expected.std()
    assert [path.name for path in folder.parent.iterdir()] == ["baseline"]
    card = (folder / "README.md").read_text()
    assert "| held-out NLL, bits per token | " in card and manifest.data_hash in card
    assert "seed 0" in card and "top_k" in card
    with pytest.raises(UserError, match=r"^--out: exports/smoke/baseline is there already$"):
        main("baseline", "hf", None, None)


@torch.no_grad()
def test_a_free_transformer(workspace, tmp_path):
    """With its code, and a card that calls bounds bounds."""
    train_run()
    experiment = load_experiment()
    experiment.evaluation.tokens = 520
    measure(experiment, RUN)
    main(RUN, "hf", None, None)
    folder = workspace / "exports/smoke" / RUN
    ours, manifest = load_model(checkpoint_path("smoke", RUN))
    tokens, noise = torch.randint(10, (2, 7)), torch.rand(2, 7, ours.config.latent_bits)
    expected = ours.logits(ours(tokens, codes=pack_bits(noise < 0.5)).hidden)
    with modules_in(tmp_path / "modules"):
        found = load(folder)(tokens, latent_noise=noise).logits
    assert (found - expected).abs().max() < 1e-5 * expected.std()
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


def test_what_is_not_there_is_refused_and_leaves_nothing(workspace):
    with pytest.raises(UserError, match=f"{RUN}/last.ckpt: no checkpoint here"):
        main(RUN, "hf", None, None)
    with pytest.raises(UserError, match=r"^--tokens: .* has no checkpoint at 7 tokens, but at "):
        main(RUN, "hf", 7, None)
    assert not list(workspace.glob("exports/**/*"))
