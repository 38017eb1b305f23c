"""What is said of z and the target: from the figures, and no more than they allow."""

from dataclasses import replace

import pytest

from pipelines.artifacts.results import Between
from pipelines.report.sections.target_latent import explained, start_sentence
from pipelines.report.sections.target_reconstruction import (
    aggregate_cell,
    prior_sentences,
    target_table,
)
from tests.support.mutants import rejects
from tests.support.results import PAIR, arms_of, change, with_seeds, write_experiment, write_latent


def arms(folder, prior, valid, start=4.0):
    """A baseline and a Free Transformer, a seed for each of these shares of valid sequences."""
    write_experiment(folder, with_seeds(PAIR, len(prior)), {})
    for i, (mine, others) in enumerate(zip(prior, valid, strict=True)):
        write_latent(folder, f"free_s{i}", start + i, others, mine)
    return arms_of(folder)


def test_the_start_is_told_at_least_and_when_half_of_it_is(tmp_path):
    said = start_sentence(arms(tmp_path, [1.0] * 3, [1.0] * 3)[1])
    assert said == [
        "free: z alone tells at least 5.00 of the 5.83 bits of where the target starts, half of "
        "that by position 1 (mean of 3 seeds, spread 1.00)."
    ]


def test_where_next_to_nothing_is_told_or_a_position_not_measured_no_half_is(tmp_path):
    end = "of the 5.83 bits of where the target starts."
    free = arms(tmp_path / "a", [1.0], [1.0], start=0.05)[1]
    assert start_sentence(free) == [f"free: z alone tells at least 0.05 {end}"]
    both = arms(tmp_path / "b", [1.0], [1.0], start=-0.004)  # as sampling may bring it
    assert start_sentence(both[1]) == [f"free: z alone tells at least 0.00 {end}"]
    assert target_table(both)[6][1:] == ["–", "0.00"]
    free = arms(tmp_path / "c", [1.0], [1.0])[1]
    free.first.details.latent.start_bits[1] = None
    assert start_sentence(free) == [f"free: z alone tells at least 4.00 {end}"]


def test_worse_beyond_the_seeds_comes_with_the_gap(tmp_path):
    (said,) = prior_sentences(arms(tmp_path, [0.5, 0.52, 0.48], [0.98, 0.99, 0.97])[1:])
    assert said.startswith("Prior generations are worse than posterior reconstructions: free")
    assert "0.500 against 0.980), −0.4800, seeds ± 0.0129 (threshold 0.0358, 3 and 3 seeds)" in said
    assert "is between 1.5 and 2.5 bits per sequence" in said
    assert said.endswith("is 14.4 bits.")  # 0.2222 bits per token, 65 tokens


@pytest.mark.parametrize(
    ("bits", "words", "cell"),
    [
        (Between(1.5), "aggregate posterior is from the prior was not measured", "–"),
        # from below there is no gap to a learned prior
        (Between(None, 2.5), "posterior from the prior is at most 2.5 bits", "≤ 2.5 ± 0.0"),
    ],
)
def test_a_gap_is_said_as_far_as_it_was_measured(tmp_path, bits, words, cell):
    free = arms(tmp_path, [0.5, 0.52], [0.98, 0.99])[1]
    for seed in free.runs:
        seed.evaluation.latent = replace(seed.evaluation.latent, aggregate_bits=bits)
    (said,) = prior_sentences([free])
    assert words in said
    assert aggregate_cell(free) == cell


@rejects(
    "report/sections/target_reconstruction.py",
    'if c.verdict == "lower"',
    "if c.mean < 0",
    "generations called worse within what seeds differ by",
)
@pytest.mark.parametrize(
    ("prior", "valid", "start", "end"),
    [
        ([0.9, 1.0, 0.8], [0.95, 0.96, 0.97], "Prior generations are not shown to be worse than",
         "free (valid 0.900 against 0.960)."),
        ([1.0, 1.0], [0.5, 0.5], "Prior generations are valid more often than",
         "free (valid 1.000 against 0.500)."),
        ([0.1], [0.9], "With a single seed no difference between", "0.100 against 0.900)."),
    ],
)  # fmt: skip
def test_within_the_seeds_no_difference_is_claimed(tmp_path, prior, valid, start, end):
    (said,) = prior_sentences(arms(tmp_path, prior, valid)[1:])
    assert said.startswith(start) and said.endswith(end)


def test_the_table_has_an_arm_a_column_and_spreads(tmp_path):
    head, *rows = target_table(arms(tmp_path, [0.9, 1.0], [0.95, 0.95]))
    cells = {name: values for name, *values in rows}
    assert head == ["", "base", "free"]
    assert cells["exact NLL of the process, nats/token"] == ["0.3080", "0.3080"]
    assert cells["ELBO bound − exact, nats/token"] == ["–", "0.2000 ± 0.0000"]
    assert cells["start known from z, at least, bits"] == ["–", "4.50 ± 0.71"]
    assert cells["prior generations: valid"] == ["1.000 ± 0.000", "0.950 ± 0.071"]
    assert cells["posterior reconstructions: valid"] == ["–", "0.950 ± 0.000"]
    assert cells["aggregate posterior from the prior, bits/sequence"][1] == "1.5 ± 0.0 to 2.5 ± 0.0"
    assert cells["– overlap of noise"] == ["–", "–"]  # null


def test_an_arm_of_which_a_seed_was_not_asked_is_left_out(tmp_path):
    assert [arm.name for arm in explained(arms(tmp_path, [1.0, 1.0], [1.0, 1.0]))] == ["free"]
    change(tmp_path, "free_s1", "evaluation.json", latent=None)
    assert explained(arms_of(tmp_path)) == []
