"""Generations to look at: who shares a z with whom, and what is the same for every arm."""

import pytest
import torch

from pipelines.config.data import ProcessData
from pipelines.evaluate import generations
from tests.evaluate.conftest import tiny
from tests.support.mutants import rejects


@pytest.fixture
def of_letters(measured):
    """The generations of a model of the target task."""

    def taken(model, **settings):
        data = ProcessData("target")
        return measured(generations, model, data=data, **settings)[1].generations

    return taken


@rejects(
    "evaluate/generations.py",
    "same = pinned[:, :length].repeat_interleave(sampling.draws, dim=0)",
    "same = torch.rand(len(pinned) * sampling.draws, length, bits, generator=rng)",
    "a pinned z that each generation draws for itself",
)
@rejects(
    "evaluate/generations.py",
    "fresh = torch.rand(sampling.draws, length, bits, generator=rng)",
    "fresh = torch.rand(1, length, bits, generator=rng).expand(sampling.draws, -1, -1)",
    "a fresh z for each prompt in place of each generation",
)
def test_what_has_a_pinned_z_shares_it_under_every_prompt_and_nothing_else_does(
    decided, of_letters
):
    """The model's tokens follow from z alone."""
    entries = of_letters(decided)
    assert [len(e.pinned) for e in entries] == [6] * 4
    assert all(len(texts) == 6 for e in entries for texts in (e.fresh, *e.pinned))
    assert all(len(text) == 64 for e in entries for texts in (e.fresh, *e.pinned) for text in texts)
    assert all(len(set(texts)) == 1 for e in entries for texts in e.pinned)
    for z in range(6):
        assert len({e.pinned[z][0] for e in entries}) == 1
    fresh = [text for e in entries for text in e.fresh]
    assert len({*fresh, *(texts[0] for texts in entries[0].pinned)}) == 4 * 6 + 6


def test_every_arm_has_the_same_prompts_and_numbers_of_z(noises, of_letters):
    first, second = tiny(latent_bits=3), tiny(latent_bits=3)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.add_(0.1)
    prompts = [e.prompt for e in of_letters(first)]
    assert len(set(prompts)) == 4 and all(prompt[1] == ">" for prompt in prompts)
    assert [e.prompt for e in of_letters(second)] == prompts
    assert torch.equal(torch.stack(noises[:4]), torch.stack(noises[4:]))
    pinned = [noise[6:] for noise in noises[:4]]
    assert all(torch.equal(pinned[0], other) for other in pinned)
    assert (
        len({noise.flatten()[0].item() for noise in torch.cat([n[:6] for n in noises[:4]])}) == 24
    )


@rejects(
    "evaluate/generations.py",
    "        if model.config.latent.per != Per.token and model.latent.prior is None:",
    "        if False:",
    "spans of a prompt that are not pinned",
)
def test_where_several_tokens_read_a_z_that_of_the_prompt_is_pinned_too(noises, of_letters):
    """A uniform number would leave it to the prompt's tokens; one of ±1 decides the bit."""
    of_letters(tiny(latent={"per": "every", "every": 4}))
    assert all(noise[:6].min() >= 0 for noise in noises)
    assert {z.item() for noise in noises for z in noise[6:].unique()} == {-1, 1}


def test_a_baseline_has_the_same_prompts_and_no_z_to_pin(of_letters):
    entries = of_letters(tiny(latent_bits=0))
    assert [e.prompt for e in entries] == [e.prompt for e in of_letters(tiny(latent_bits=3))]
    assert all(len(e.fresh) == 6 and e.pinned == [] for e in entries)


def test_generations_depend_on_the_seed_of_evaluation_alone(decided, of_letters):
    torch.manual_seed(1)
    again = of_letters(decided)
    torch.manual_seed(2)
    assert of_letters(decided) == again
    other = of_letters(decided, seed=1)
    assert [e.prompt for e in other] != [e.prompt for e in again]
    assert not {e.pinned[0][0] for e in other} & {e.pinned[0][0] for e in again}


def test_text_is_continued_from_its_held_out_beginnings(measured):
    """One prompt is shorter, of a short chunk; all fit the context."""
    _, details = measured(generations, tiny(vocab_size=256, context=16))
    prompts = ["0,1,2,3,4,5,6,7", "0,1,2", "0,1,2,3,4,5,6,7"]
    assert [e.prompt for e in details.generations] == prompts
    for e, length in zip(details.generations, (8, 3, 8), strict=True):
        texts = [text for group in (e.fresh, *e.pinned) for text in group]
        assert len(texts) == 28
        assert {len(text.split(",")) for text in texts} == {17 - length}
