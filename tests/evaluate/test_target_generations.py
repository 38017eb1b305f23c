"""Groups of generated sequences, of models whose answers are known."""

from math import log

import pytest
import torch

from ftmodel.synthetic.target_task import ALPHABET, BANG
from pipelines.config.schema import Evaluation
from pipelines.evaluate.target_generations import target_groups
from tests.evaluate.conftest import tiny
from tests.support.mutants import rejects

CPU = torch.device("cpu")
SETTINGS = Evaluation(groups=12, group_size=5)


@rejects(
    "evaluate/target_generations.py",
    "sample(share_z=size)",
    "sample(share_z=1)",
    "a z of its own for each sequence of a pinned group",
)
@rejects(
    "evaluate/target_generations.py",
    "sample(share_z=size)",
    "sample(share_z=size * settings.groups)",
    "one z for all pinned groups",
)
@rejects(
    "evaluate/target_generations.py", "share_z=1", "share_z=size", "fresh groups that share their z"
)
def test_sequences_of_a_pinned_group_share_their_z_and_no_others_do(decided):
    fresh, pinned = target_groups(decided, SETTINGS, CPU)
    assert [len(group) for group in fresh + pinned] == [5] * 24
    assert all(len(set(group)) == 1 for group in pinned)
    alone = [text for group in fresh for text in group] + [group[0] for group in pinned]
    assert len({text[2:] for text in alone}) == len(alone)


@rejects(
    "evaluate/target_generations.py",
    "letters.repeat_interleave(size, dim=0)",
    "letters.repeat(size, 1)",
    "groups that mix letters",
)
def test_sequences_of_a_group_share_their_letter(decided):
    for groups in target_groups(decided, SETTINGS, CPU):
        assert all({text[:2] for text in group} == {group[0][:2]} for group in groups)
        prompts = [group[0][:2] for group in groups]
        assert all(prompt[1] == ">" for prompt in prompts)
        assert len(set(prompts)) > 6


@rejects(
    "evaluate/target_generations.py",
    "z=FromPrior(share_z))",
    "z=FromPrior(share_z), temperature=0.5)",
    "groups sampled at another temperature",
)
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


@rejects(
    "evaluate/target_generations.py",
    "generator(settings.seed, Purpose.GROUPS)",
    "generator(0, Purpose.GROUPS)",
    "the same groups for every seed of evaluation",
)
def test_groups_depend_on_the_seed_of_evaluation_alone(decided):
    settings = Evaluation(groups=12, group_size=5, seed=1)
    torch.manual_seed(1)
    again = target_groups(decided, SETTINGS, CPU)
    other = target_groups(decided, settings, CPU)
    torch.manual_seed(2)
    assert target_groups(decided, SETTINGS, CPU) == again
    for mine, theirs in zip(again, other, strict=True):
        assert [group[0][0] for group in mine] != [group[0][0] for group in theirs]
        assert not {group[0][2:] for group in mine} & {group[0][2:] for group in theirs}
