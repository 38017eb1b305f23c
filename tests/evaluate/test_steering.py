"""Steering: pinned z of continuations, and what is the same for all of them."""

from types import SimpleNamespace

import pytest
import torch

from pipelines.config.data import ProcessData, TextData
from pipelines.config.schema import Evaluation
from pipelines.evaluate import generations, steering
from tests.evaluate.test_generations import memory_text  # noqa: F401
from tests.evaluate.test_target_generations import decided, make  # noqa: F401
from tests.support.mutants import rejects

CPU = torch.device("cpu")


@pytest.fixture
def noises(monkeypatch):
    """The noise of z of every generation, in their order."""
    seen = []
    original = steering.generate

    def generate(*arguments, z, **others):
        seen.append(z.values)
        return original(*arguments, z=z, **others)

    monkeypatch.setattr(steering, "generate", generate)
    return seen


def measured(model, shards, monkeypatch, **settings):
    context = SimpleNamespace(
        model=model, shards=shards, data=TextData(), settings=Evaluation(**settings), device=CPU,
        evaluation=SimpleNamespace(),
    )  # fmt: skip
    assert steering.applies(context)
    steering.measure(context)
    return context.evaluation.steering


@rejects(
    "evaluate/steering.py",
    "torch.rand(len(prompt), bits, generator=rng).expand(len(z), -1, -1)",
    "torch.rand(len(z), len(prompt), bits, generator=rng)",
    "continuations with the same z and another z of the prompt",
)
def test_a_z_is_the_same_at_every_new_token_and_the_prompt_s_in_every_row(
    make_model, memory_text, monkeypatch, noises  # noqa: F811
):  # fmt: skip
    measured(make_model(vocab_size=256), memory_text, monkeypatch, steering_prompts=4)
    assert [len(noise) for noise in noises] == [16] * 4
    codes = set()
    for noise, prompt in zip(noises, (8, 3, 8, 8), strict=True):
        assert (noise[:, :prompt] == noise[:1, :prompt]).all()
        assert noise[:, :prompt].min() >= 0 and noise[:, :prompt].max() < 1
        new = noise[:, prompt:]
        assert (new == new[:, :1]).all() and new.abs().min() == 1
        rows = [tuple(row.tolist()) for row in new[:, 0]]
        assert [rows.index(row) for row in rows] == [i // 4 * 4 for i in range(16)]
        codes.add(tuple(rows))
    assert len(codes) == 1, "all prompts have the same z"


@rejects(
    "evaluate/steering.py",
    "if model.config.latent.per == Per.token:",
    "if True:",
    "pins that the z of the prompt overrides",
)
def test_a_z_of_several_tokens_is_pinned_from_the_prompt_s_first_token_on(
    make_model, memory_text, monkeypatch, noises  # noqa: F811
):  # fmt: skip
    """Else new tokens would go on with the prompt's z."""
    model = make_model(vocab_size=256, latent={"per": "sequence"})
    measured(model, memory_text, monkeypatch, steering_prompts=2)
    for noise in noises:
        assert (noise == noise[:, :1]).all() and noise.abs().min() == 1
        assert len({tuple(row.tolist()) for row in noise[:, 0]}) == 4


def test_a_model_whose_tokens_follow_from_z_has_no_distance_within(
    decided, memory_text, monkeypatch  # noqa: F811
):  # fmt: skip
    figures = measured(decided, memory_text, monkeypatch, steering_prompts=3)
    assert figures.same.mean == 0 and figures.different.mean > 0.5
    assert figures.ratio is None and figures.p_value is None


@rejects(
    "evaluate/steering.py",
    "sequences[:, len(prompt) + 1 :]",
    "sequences[:, len(prompt) :]",
    "a token that no pinned z decides among those compared",
)
def test_the_first_new_token_which_the_prompt_s_z_decides_is_not_compared(
    make_model, monkeypatch, rng
):
    def generate(model, prompt, new, **_):
        return torch.arange(prompt.shape[1] + new).expand(len(prompt), -1)

    monkeypatch.setattr(steering, "generate", generate)
    prompt, z = torch.zeros(4, dtype=torch.long), torch.arange(6)
    for length, compared in ((7, range(5, 12)), (99, range(5, 17))):  # of a context of 16
        settings = Evaluation(steering_length=length)
        tokens = steering.continuations(make_model(), prompt, z, settings, rng)
        assert tokens.tolist() == [list(compared)] * 6


def test_a_model_that_ignores_z_is_not_said_to_be_steered(
    make_model, memory_text, monkeypatch  # noqa: F811
):  # fmt: skip
    model = make_model(vocab_size=256)
    with torch.no_grad():
        model.latent.post_sampler.zero_()
    figures = measured(model, memory_text, monkeypatch)
    assert figures.null_mean == pytest.approx(1, abs=0.02)
    assert 0.005 < figures.p_value <= 1
    assert figures.ratio.mean == pytest.approx(figures.different.mean / figures.same.mean)


def test_a_model_that_reads_z_is_steered(make_model, memory_text, monkeypatch):  # noqa: F811
    model = make_model(vocab_size=256)
    with torch.no_grad():
        model.latent.post_sampler.mul_(10)
        for block in model.blocks:
            block.attention.output.weight.mul_(4)
    figures = measured(model, memory_text, monkeypatch, steering_z=6, steering_draws=6)
    assert figures.ratio.mean > figures.null_95 > 1 and figures.p_value < 0.01


def test_a_baseline_has_the_distance_of_its_draws_alone(make_model, memory_text, monkeypatch):  # noqa: F811
    figures = measured(make_model(vocab_size=256, latent_bits=0), memory_text, monkeypatch)
    assert 0 < figures.same.mean <= 1 and figures.different is None and figures.ratio is None


def test_a_latent_of_one_bit_has_two_z(make_model, memory_text, monkeypatch, noises):  # noqa: F811
    figures = measured(make_model(vocab_size=256, latent_bits=1), memory_text, monkeypatch)
    assert figures.ratio and len(noises[0][:, -1].unique()) == 2


def test_it_is_left_out_of_processes_and_where_it_is_turned_off():
    def context(data, prompts):
        return SimpleNamespace(data=data, settings=Evaluation(steering_prompts=prompts))

    assert steering.applies(context(TextData(), 1))
    assert not steering.applies(context(TextData(), 0))
    assert not steering.applies(context(ProcessData("target"), 8))
    assert generations.TEXT.temperature > 0, "one continuation for each z would be all there is"
