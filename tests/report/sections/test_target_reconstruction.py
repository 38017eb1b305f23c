"""What is said of z and the target: from the figures, and no more than they allow."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.artifacts.results import Between
from pipelines.report.arms import Arm
from pipelines.report.sections.target_latent import explained, start_sentence
from pipelines.report.sections.target_reconstruction import (
    aggregate_cell,
    prior_sentences,
    target_table,
)
from tests.support.mutants import rejects
from tests.support.results import arms_of, change, make_report, run, write_experiment, write_latent


def arms(folder: Path, prior: list[float], valid: list[float], start: float = 4.0) -> list[Arm]:
    """A baseline and a Free Transformer, a seed for each of these shares of valid sequences."""
    runs = {f"base_s{i}": run(seed=i) for i in range(len(prior))}
    runs |= {f"free_s{i}": run(kappa=1.0, seed=i) for i in range(len(prior))}
    write_experiment(folder, runs, {})
    for i, (mine, others) in enumerate(zip(prior, valid, strict=True)):
        write_latent(folder, f"free_s{i}", start + i, others, mine)
    return arms_of(folder)


def test_the_start_is_told_at_least_and_when_half_of_it_is(tmp_path: Path) -> None:
    free = arms(tmp_path, [1.0, 1.0, 1.0], [1.0, 1.0, 1.0])[1]
    assert start_sentence(free) == [
        "free: z alone tells at least 5.00 of the 5.83 bits of where the target starts, half of "
        "that by position 1 (mean of 3 seeds, spread 1.00)."
    ]


def test_of_next_to_nothing_no_half_is_told(tmp_path: Path) -> None:
    (said,) = start_sentence(arms(tmp_path, [1.0], [1.0], start=0.05)[1])
    assert said == "free: z alone tells at least 0.05 of the 5.83 bits of where the target starts."


def test_an_estimate_below_zero_is_said_as_it_is(tmp_path: Path) -> None:
    """Sampling may bring a lower bound of next to nothing there."""
    both = arms(tmp_path, [1.0], [1.0], start=-0.004)
    assert start_sentence(both[1])[0].startswith("free: z alone tells at least 0.00 of the 5.83")
    assert target_table(both)[6][1:] == ["–", "0.00"]


def test_where_a_position_was_not_measured_no_half_is_told(tmp_path: Path) -> None:
    free = arms(tmp_path, [1.0], [1.0])[1]
    assert free.first.details.latent
    free.first.details.latent.start_bits[1] = None
    assert start_sentence(free)[0].endswith("bits of where the target starts.")


def test_worse_beyond_the_seeds_comes_with_the_gap(tmp_path: Path) -> None:
    (said,) = prior_sentences(arms(tmp_path, [0.5, 0.52, 0.48], [0.98, 0.99, 0.97])[1:])
    assert said.startswith(
        "Prior generations are worse than posterior reconstructions: free (valid 0.500 against "
        "0.980), −0.4800, seeds ± 0.0129 (threshold 0.0358, 3 and 3 seeds)."
    )
    assert "is between 1.5 and 2.5 bits per sequence" in said
    assert said.endswith("is 14.4 bits.")  # 0.2222 bits per token, 65 tokens


def test_a_gap_that_was_not_measured_is_said_not_to_be(tmp_path: Path) -> None:
    free = arms(tmp_path, [0.5, 0.52], [0.98, 0.99])[1]
    latent = free.first.evaluation.latent
    assert latent
    free.first.evaluation.latent = replace(latent, aggregate_bits=Between(1.5))
    (said,) = prior_sentences([free])
    assert said.endswith("How far the aggregate posterior is from the prior was not measured.")
    assert aggregate_cell(free) == "–"


def test_from_below_there_is_no_gap_to_a_learned_prior(tmp_path: Path) -> None:
    free = arms(tmp_path, [0.5, 0.52], [0.98, 0.99])[1]
    for seed in free.runs:
        latent = seed.evaluation.latent
        assert latent
        seed.evaluation.latent = replace(latent, aggregate_bits=Between(None, 2.5))
    (said,) = prior_sentences([free])
    assert "The KL of the aggregate posterior from the prior is at most 2.5 bits" in said
    assert aggregate_cell(free) == "≤ 2.5 ± 0.0"


@rejects(
    "report/sections/target_reconstruction.py",
    'if c.verdict == "lower"',
    "if c.mean < 0",
    "generations called worse within what seeds differ by",
)
@pytest.mark.parametrize(
    ("prior", "valid", "said"),
    [
        (
            [0.9, 1.0, 0.8],
            [0.95, 0.96, 0.97],
            "Prior generations are not shown to be worse than posterior reconstructions: free "
            "(valid 0.900 against 0.960).",
        ),
        (
            [1.0, 1.0],
            [0.5, 0.5],
            "Prior generations are valid more often than posterior reconstructions: free "
            "(valid 1.000 against 0.500).",
        ),
        (
            [0.1],
            [0.9],
            "With a single seed no difference between prior generations and posterior "
            "reconstructions is claimed: free (valid 0.100 against 0.900).",
        ),
    ],
)
def test_within_the_seeds_no_difference_is_claimed(
    tmp_path: Path, prior: list[float], valid: list[float], said: str
) -> None:
    assert prior_sentences(arms(tmp_path, prior, valid)[1:]) == [said]


def test_the_table_has_an_arm_a_column_and_spreads(tmp_path: Path) -> None:
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


def test_results_made_before_have_no_such_section(tmp_path: Path) -> None:
    folder = make_report(write_experiment(tmp_path, {"base": run(), "free": run(kappa=1.0)}, {}))
    for name in ("index.html", "report.md"):
        text = (folder / name).read_text()
        assert "What z says of the target" not in text and "z from the prior" not in text
    assert not list(folder.glob("figures/latent_*"))


def test_an_arm_of_which_a_seed_was_not_asked_is_left_out(tmp_path: Path) -> None:
    free = arms(tmp_path, [1.0, 1.0], [1.0, 1.0])
    assert [arm.name for arm in explained(free)] == ["free"]
    change(tmp_path, "free_s1", "evaluation.json", latent=None)
    assert explained(arms_of(tmp_path)) == []


def test_both_sections_are_on_both_pages(tmp_path: Path) -> None:
    arms(tmp_path, [0.5, 0.5], [1.0, 1.0])
    folder = make_report(tmp_path)
    for name in ("index.html", "report.md"):
        text = (folder / name).read_text()
        assert "It is a lower bound" in text
        assert "free: z alone tells at least 4.50 of the 5.83 bits" in text
        assert "between 1.5 and 2.5 bits per sequence" in text
        assert "posterior reconstructions: valid" in text
    assert (folder / "figures/latent_target.png").exists()
