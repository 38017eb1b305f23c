"""Generations to look at, and the target task's groups, of models whose answers are known."""

from functools import partial
from math import log

import pytest
import torch

from ftmodel.mapper import pack_bits
from ftmodel.synthetic.target import ALPHABET, BANG
from pipelines.config.data import ProcessData
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate import generations
from pipelines.evaluate.target import target_groups
from tests.evaluate.conftest import tiny
from tests.support.mutants import rejects

CPU = torch.device("cpu")
SETTINGS = EvaluationConfig(groups=12, group_size=5)


@pytest.fixture
def of_letters(measured):
    return partial(measured, generations.measure_generations, data=ProcessData("target"))


@rejects("generations.continuations: dim=0)«→.uniform_()»", "a pinned z that each generation draws")
@rejects("generations.continuations: rng)«→[[0] * sampling.draws]»", "a fresh z for each prompt")
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
    noises, others = torch.stack([z.values for z in noises]).split(4)
    assert torch.equal(noises, others)
    assert (noises[:, 6:] == noises[0, 6:]).all()
    assert len(noises[:, :6].flatten(0, 1)[:, 0, 0].unique()) == 24
    baseline = of_letters(tiny(latent_bits=0, tied=False))
    assert [e.prompt for e in baseline] == prompts
    assert all(len(e.fresh) == 6 and e.pinned == [] for e in baseline)


def test_where_several_tokens_read_a_z_that_of_the_prompt_is_pinned_too(noises, of_letters):
    """A uniform number would leave it to the prompt's tokens; a code does not."""
    of_letters(tiny())
    for prior in ("uniform", "learned"):
        of_letters(tiny(latent={"per": "every", "every": 4, "prior": prior}))
    alone, shared, learned = noises[:4], noises[4:8], noises[8:]
    for one, two, three in zip(alone, shared, learned, strict=True):
        assert torch.equal(one.values, two.values) and torch.equal(one.values, three.values)
        assert one.codes is three.codes is None, "of a learned prior a number is no bit"
        assert not two.given[:6].any() and two.given[6:].all()
        assert torch.equal(two.codes, pack_bits(one.values < 0.5))


def test_text_is_continued_from_its_held_out_beginnings(measured):
    """One prompt is shorter, of a short chunk; all fit the context."""
    samples = measured(generations.measure_generations, tiny(vocab_size=256, context=16))
    prompts = ["0,1,2,3,4,5,6,7", "0,1,2", "0,1,2,3,4,5,6,7"]
    assert [e.prompt for e in samples] == prompts
    for e, length in zip(samples, (8, 3, 8), strict=True):
        texts = [text for group in (e.fresh, *e.pinned) for text in group]
        assert len(texts) == 28
        assert {len(text.split(",")) for text in texts} == {17 - length}


@rejects("target.target_groups: share_z=«1→size»", "fresh groups that share their z")
@rejects(
    "target.target_groups: «repeat_interleave(size, dim=0)→repeat(size, 1)»",
    "groups that mix letters",
)
def test_sequences_of_a_group_share_their_letter_and_of_a_pinned_one_their_z(decided):
    fresh, pinned = target_groups(decided, SETTINGS, CPU)
    for groups in (fresh, pinned):
        prompts = [{text[:2] for text in group} for group in groups]
        assert all(len(of_group) == 1 for of_group in prompts)
        prompts = set().union(*prompts)
        assert all(prompt[1] == ">" for prompt in prompts) and len(prompts) > 6
    assert [len(group) for group in fresh + pinned] == [5] * 24
    assert all(len(set(group)) == 1 for group in pinned)
    alone = [text for group in fresh for text in group] + [group[0] for group in pinned]
    assert len({text[2:] for text in alone}) == len(alone)


@pytest.mark.parametrize("latent_bits", [0, 3])
def test_characters_are_as_frequent_as_the_model_has_them(latent_bits):
    """Nine in ten are '_' and the others '!', whatever comes before."""
    model = tiny(latent_bits, tied=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("output.weight", "down.weight")):
                parameter.zero_()  # what is read changes nothing
        model.embedding.weight.fill_(1.0)
        model.readout.weight.zero_()
        model.readout.weight[:, 0] = -1e4
        model.readout.weight[BANG, 0] = log(0.1)
        model.readout.weight[ALPHABET.index("_"), 0] = log(0.9)
    groups = [group for groups in target_groups(model, SETTINGS, CPU) for group in groups]
    assert len(groups) == (24 if latent_bits else 12)  # a baseline has none that share z
    characters = "".join(text[2:] for group in groups for text in group)
    assert set(characters) == {"!", "_"}
    assert characters.count("!") / len(characters) == pytest.approx(0.1, abs=0.02)  # 4 se


@rejects("target.target_groups: «settings.seed→0»", "the same groups for every seed")
def test_generations_and_groups_depend_on_the_seed_of_evaluation_alone(decided, of_letters):
    streams = {0, generations.PINNED_Z, generations.FRESH_Z_AND_TOKENS, generations.PROMPTS}
    assert len(streams) == 4, "two of them would draw the same numbers"
    settings = EvaluationConfig(groups=12, group_size=5, seed=1)
    torch.manual_seed(1)
    entries, again = of_letters(decided), target_groups(decided, SETTINGS, CPU)
    others, other = of_letters(decided, seed=1), target_groups(decided, settings, CPU)
    torch.manual_seed(2)
    assert of_letters(decided) == entries and target_groups(decided, SETTINGS, CPU) == again
    assert [e.prompt for e in others] != [e.prompt for e in entries]
    assert not {e.pinned[0][0] for e in others} & {e.pinned[0][0] for e in entries}
    for mine, theirs in zip(again, other, strict=True):
        assert [group[0][0] for group in mine] != [group[0][0] for group in theirs]
        assert not {group[0][2:] for group in mine} & {group[0][2:] for group in theirs}
