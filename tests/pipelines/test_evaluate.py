"""Evaluation: the same held-out sequences for every arm, exact figures, repeatable."""

import math

import pytest
import torch

from ftmodel.config import ModelConfig
from ftmodel.target_task import exact_log_probability
from ftmodel.transformer import FreeTransformer
from pipelines.checkpoint import Card, check_vocabulary
from pipelines.errors import UserError
from pipelines.evaluate import evaluate, flatten, held_out
from pipelines.schema import Evaluation
from pipelines.shards import Shards

SETTINGS = Evaluation(tokens=1300, batch_tokens=260, iwae_samples=2, groups=2, group_size=5)
CPU = torch.device("cpu")


def tiny(shards, latent_bits, context):
    torch.manual_seed(0)
    config = ModelConfig(2, 16, 2, 1, 32, context, latent_bits=latent_bits)
    return FreeTransformer(config, shards.metadata.vocab_size).eval()


@pytest.fixture
def target(tokenized):
    return Shards(tokenized.folder / "data/tokens/target")


@pytest.fixture
def text(tokenized):
    return Shards(tokenized.folder / "data/tokens/stdlib")


def test_held_out_windows_are_spread_over_the_whole_part_and_within_the_budget(text):
    windows = text.windows("validation", 64)
    some = held_out(text, 64, 640)
    assert some.shape == (10, 65)
    assert torch.equal(some[5], windows.batch(torch.tensor([5 * len(windows) // 10]))[0])
    assert len(held_out(text, 64, 10**9)) == len(windows)


def test_target_figures_of_a_baseline(target):
    """NLL and gap agree with a direct computation on the same 20 sequences."""
    model = tiny(target, 0, 65)
    metrics, details = evaluate(model, target, SETTINGS, CPU)
    sequences = held_out(target, 65, SETTINGS.tokens)
    with torch.no_grad():
        logits = model.logits(model(sequences[:, :-1]).hidden)
    nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten())
    exact = -exact_log_probability(sequences).mean() / 65
    bits = metrics["bits_per_token"]
    assert metrics["sequences"] == 20
    assert bits["nll"]["mean"] == pytest.approx(nll.item() / math.log(2), rel=1e-5)
    assert bits["exact"]["mean"] == pytest.approx(exact.item() / math.log(2), rel=1e-6)
    assert metrics["gap_nats_per_token"]["mean"] == pytest.approx((nll - exact).item(), rel=1e-5)
    assert list(details["groups"]) == ["fresh"]
    assert sum(details["bound_bits"]) / 20 == pytest.approx(bits["nll"]["mean"], abs=1e-5)


def test_a_free_transformer_is_measured_by_its_bounds_and_repeatably(target):
    model = tiny(target, 3, 65)
    metrics, details = evaluate(model, target, SETTINGS, CPU)
    bits = metrics["bits_per_token"]
    gap = metrics["gap_nats_per_token"]["mean"]
    assert gap == pytest.approx(
        (bits["iwae"]["mean"] - bits["exact"]["mean"]) * math.log(2), rel=1e-4
    )
    assert sum(details["bound_bits"]) / 20 == pytest.approx(bits["iwae"]["mean"], abs=1e-5)
    assert len(details["kl_per_bit"]) == 3
    assert sum(details["kl_per_bit"]) == pytest.approx(bits["kl"]["mean"], rel=1e-4)
    assert (metrics["fresh"]["groups"], metrics["pinned"]["group_size"]) == (2, 5)
    assert evaluate(model, target, SETTINGS, CPU) == (metrics, details)


def test_bits_per_byte_count_the_bytes_of_the_scored_text(text):
    """The tokens of a byte-level vocabulary decode to as many bytes as are counted."""
    model = tiny(text, 0, 64)
    metrics, details = evaluate(model, text, SETTINGS, CPU)
    targets = held_out(text, 64, SETTINGS.tokens)[:, 1:]
    kept = targets[targets != text.metadata.end_of_text].tolist()
    size = len(text.tokenizer().decode(kept).encode())
    ratio = targets.numel() / size
    per_token, per_byte = metrics["bits_per_token"]["nll"], metrics["bits_per_byte"]["nll"]
    assert per_byte["mean"] == pytest.approx(per_token["mean"] * ratio, rel=0.01)
    assert all(sample["text"] for sample in details["samples"])


def test_flatten_joins_keys():
    assert flatten({"a": {"b": 1, "c": {"d": 2.5}}, "e": True}) == {"a/b": 1, "a/c/d": 2.5, "e": 1}


def test_a_model_of_other_data_is_refused(target, tmp_path):
    card = Card("e", "r", {}, {}, 29, data_hash="another", spec_hash="")
    with pytest.raises(UserError, match="trained on other data"):
        check_vocabulary(tmp_path / "x.ckpt", card, target)
