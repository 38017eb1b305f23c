"""Steering: pinned z of continuations, and what is the same for all of them."""

from functools import partial

import pytest
import torch

from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate import generations
from tests.support.mutants import rejects


@pytest.fixture
def figures_of(measured):
    return partial(measured, generations.measure_steering)


@pytest.fixture
def of_bytes(make_model):
    return lambda **shape: make_model(vocab_size=256, **shape)


def test_codes_of_up_to_16_bits_differ(rng):
    """Of 1,000 random ones of 16 bits eight pairs would be the same."""
    assert len(generations.different_codes(16, 1000, rng).unique()) == 1000
    assert sorted(generations.different_codes(2, 9, rng).tolist()) == [0, 1, 2, 3]
    bits = generations.different_codes(40, 500, rng)[:, None] >> torch.arange(40) & 1
    assert bits.double().mean(0).sub(0.5).abs().max() < 0.13  # 6 se


@rejects(
    "generations.steered_continuations: rand(«→len(z), »len(prompt), bits",
    "a z of the prompt for each row",
)
def test_a_z_is_the_same_at_every_new_token_and_the_prompt_s_in_every_row(
    of_bytes, figures_of, noises
):
    figures_of(of_bytes(), steering_prompts=4, steering_z=3, steering_draws=5)
    assert [len(z.values) for z in noises] == [15] * 4
    codes = set()
    for z, prompt in zip(noises, (8, 3, 8, 8), strict=True):
        drawn = z.values[:, :prompt]
        assert (drawn == drawn[:1]).all() and drawn[0, :, 0].unique().numel() == prompt
        assert not z.given[:, :prompt].any() and z.given[:, prompt:].all()
        assert (z.codes == z.codes[:, :1]).all()
        rows = z.codes[:, 0].tolist()
        assert [rows.index(row) for row in rows] == [i // 5 * 5 for i in range(15)]
        codes.add(tuple(rows))
    assert len(codes) == 1, "all prompts have the same z"


def test_a_z_of_several_tokens_is_pinned_from_the_prompt_s_first_token_on(
    of_bytes, figures_of, noises
):
    """Else new tokens would go on with the prompt's z."""
    model = of_bytes(latent={"per": "sequence"})
    figures_of(model, steering_prompts=2)
    for z in noises:
        assert z.given.all() and (z.codes == z.codes[:, :1]).all()
        assert len(z.codes[:, 0].unique()) == 4


@rejects("generations.steered_continuations: «TEXT.temperature→1.0»", "steering at temperature 1")
def test_the_first_new_token_which_the_prompt_s_z_decides_is_not_compared(
    make_model, monkeypatch, rng
):
    def generate(model, prompt, new, temperature, **_):
        assert temperature == 0.8
        return torch.arange(prompt.shape[1] + new).expand(len(prompt), -1)

    monkeypatch.setattr(generations, "generate", generate)
    prompt, z = torch.zeros(4, dtype=torch.long), torch.arange(6)
    for length, compared in ((7, range(5, 12)), (99, range(5, 17))):  # of a context of 16
        settings = EvaluationConfig(steering_length=length)
        tokens = generations.steered_continuations(make_model(), prompt, z, settings, rng)
        assert tokens.tolist() == [list(compared)] * 6


def test_a_model_that_reads_z_is_steered_and_one_that_ignores_it_is_not(of_bytes, figures_of):
    model = of_bytes()
    with torch.no_grad():
        model.latent.post_sampler.mul_(10)
        for block in model.blocks:
            block.attention.output.weight.mul_(4)
    figures = figures_of(model, steering_z=6, steering_draws=6)
    assert figures.ratio.mean == pytest.approx(figures.different.mean / figures.same.mean)
    assert figures.ratio.mean > figures.null_95 > 1 and figures.p_value < 0.01
    model.latent.post_sampler.data.zero_()
    ignored = figures_of(model)
    assert ignored.null_mean == pytest.approx(1, abs=0.02) and ignored.p_value > 0.005


def test_a_baseline_and_a_model_whose_tokens_follow_from_z_have_no_ratio(
    of_bytes, decided, figures_of, noises
):
    figures = figures_of(of_bytes(latent_bits=0))
    assert 0 < figures.same.mean <= 1 and figures.different is None and figures.ratio is None
    figures = figures_of(decided, steering_prompts=3)
    assert figures.same.mean == 0 and figures.different.mean > 0.5
    assert figures.ratio is None and figures.p_value is None
    noises.clear()
    assert figures_of(of_bytes(latent_bits=1)).ratio
    assert len(noises[0].codes.unique()) == 2, "a latent of one bit has two z"


@rejects("generations.steering_figures: over_documents(result.between«,→ /»", "a mean of ratios")
def test_figures_of_steering_are_means_over_prompts_and_their_ratio_one_of_sums(rng):
    """Of two prompts, continuations of the same z 0.1 and 0.5 apart, of others 0.3 and 0.7."""
    z = torch.tensor([0, 0, 1, 1])
    same = z[:, None] == z
    apart = torch.stack([torch.where(same, *each) for each in ((0.1, 0.3), (0.5, 0.7))]).double()
    apart *= 1 - torch.eye(4)
    found = generations.steering_figures(apart, z, rng)
    assert (found.same.mean, found.different.mean) == pytest.approx((0.3, 0.5))
    assert (found.same.se, found.different.se) == pytest.approx((0.2, 0.2))
    assert found.ratio.mean == pytest.approx(0.5 / 0.3)  # that of the two would be 2.2
