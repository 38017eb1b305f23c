"""The library and the example in one file compute the same."""

import re
import sys
from math import log
from pathlib import Path

import pytest
import torch

from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import Noise
from ftmodel.mapper import pack_bits
from ftmodel.model.free_transformer import draw_weights
from ftmodel.model.objective import training_loss
from ftmodel.synthetic import target
from tests.support.example import (
    assert_same_gradients,
    example,
    example_config,
    example_of,
)
from tests.support.mutants import rejects

SHAPES = [
    {},
    {"n_layers": 2, "n_heads": 2, "n_kv_heads": 1, "latent_bits": 4, "tied": False},
    {"n_kv_heads": 4, "head_width": 6, "rope_theta": 20.0, "norm_eps": 0.1, "latent_bits": 5},
]


@rejects("objective.training_loss: «hinge→kl.mean()» if", "KL without free bits")
@pytest.mark.parametrize(("shape", "kappa"), zip(SHAPES, (0.1, 0.3, 0.8), strict=True), ids=str)
def test_loss_and_every_gradient_are_those_of_the_example(
    make_model, make_tokens, rng, shape, kappa
):
    """With a hinge that some tokens' KL exceeds and that of others does not."""
    model, tokens = make_model(**shape), make_tokens(3, 12)
    noise, twin = torch.rand(3, 11, model.config.latent_bits, generator=rng), example_of(model)
    loss = training_loss(model, tokens[:, :-1], tokens[:, 1:], noise, kappa)
    ours = loss.total, loss.ce, loss.kl
    total, ce, kl = example.training_loss(twin, tokens, noise, kappa)
    assert max(0, kl - kappa * log(2)) < total - ce < kl, "all or no tokens above the threshold"
    expected = tuple(x.float() for x in (total, ce, kl))
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-5)
    ours[0].backward()
    total.backward()
    assert_same_gradients(model, twin)


@rejects("generate.prefill: «:p→1 : p + 1»", "z of a prompt by the noise of the next token")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@torch.no_grad()
def test_a_generation_is_that_of_the_example(make_model, make_tokens, rng, shape):
    """With the same noise for z of the prompt, codes of new tokens, and draws of these."""
    model, prompt = make_model(**shape), make_tokens(4, 3)
    noise = torch.rand(4, 12, model.config.latent_bits, generator=rng)
    draws = torch.rand(9, 4, dtype=torch.float64, generator=rng.manual_seed(7)).T
    codes = pack_bits(noise[:, 3:] < 0.5)
    expected = example.generate(example_of(model), prompt, noise[:, :3], codes, 1 - draws)
    rng.manual_seed(7)
    assert torch.equal(generate(model, prompt, 9, generator=rng, z=Noise(noise)), expected)


@pytest.mark.parametrize("tied", [True, False])
def test_initial_weights_are_those_of_the_library(make_model, tied):
    model = make_model(tied=tied, embedding_std=0.5, latent_std=0.1)
    twin = example.FreeTransformer(example_config(model))
    torch.manual_seed(0)
    draw_weights(model, model.config)
    torch.manual_seed(0)
    twin.reset_parameters()
    weights = twin.state_dict()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, weights[name]), name


def test_the_task_of_the_example_is_the_library_s():
    torch.manual_seed(0)
    tokens = example.sample_task(2000)
    assert target.ALPHABET == example.ALPHABET
    log_p = target.exact_log_probability(tokens)
    for place in (2, -1):  # the first and the last that a target may have
        assert (tokens[:, place] == tokens[:, 0]).any()
    ours = target.sample_sequences(2000, torch.Generator().manual_seed(0))
    expected = target.exact_log_probability(ours)
    error = (log_p.var() + expected.var()).div(2000).sqrt()
    assert (log_p.mean() - expected.mean()).abs() < 4 * error


def test_the_spread_of_the_example_is_the_library_s():
    torch.manual_seed(0)
    texts = [target.decode(row) for row in example.sample_task(5)]
    group = [texts[0][:2] + text[2:].replace(text[0], texts[0][0]) for text in texts]
    letter, bodies = group[0][0], [text[2:] for text in group]
    assert example.spread(group) == pytest.approx(target.spread(bodies, letter))


def test_it_needs_torch_alone():
    names = re.findall(
        r"^ *(?:from|import) (\w+)", Path(example.__file__).read_text(), re.MULTILINE
    )
    assert {*names} - sys.stdlib_module_names == {"torch"}


@pytest.mark.parametrize("terminal", [False, True])
def test_it_trains_and_prints_groups_of_one_prompt(monkeypatch, capsys, terminal):
    """Much less than by default; in colour on a terminal alone."""
    monkeypatch.setattr("sys.argv", ["free_transformer.py", "--steps", "2", "--kappa", "0.5"])
    for name, value in {"GROUPS": 3, "LENGTH": 16, "BATCH": 4, "COLOURED": terminal}.items():
        monkeypatch.setattr(example, name, value)
    example.main()
    out = capsys.readouterr().out
    assert "step 2/2" in out
    assert [f"\033[{colour}m" in out for colour in (34, 32)] == [terminal, terminal]
    texts = re.findall(r"^(.)>.{16}$", re.sub(r"\033\[\d+m", "", out), re.MULTILINE)
    assert len(texts) == 30 and all(len({*texts[i : i + 5]}) == 1 for i in range(0, 30, 5))


@pytest.mark.parametrize(
    "wrong", ["--kappa=-1", "--kappa=nan", "--kappa=inf", "--steps=0", "--seed=-1"]
)
def test_wrong_arguments_are_refused_in_one_line(monkeypatch, wrong):
    monkeypatch.setattr("sys.argv", ["free_transformer.py", wrong])
    with pytest.raises(SystemExit) as stopped:
        example.main()
    said = str(stopped.value.code)
    assert wrong.partition("=")[0] in said and "\n" not in said
