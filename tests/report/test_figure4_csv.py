"""Every number of Figure 4 can be recomputed from figure4.csv."""

import csv
from pathlib import Path
from statistics import fmean

import pytest

from pipelines.report.sections.figure4 import read_paper
from tests.support.results import SAMPLES, make_report, run, write_experiment, write_latent

RUNS = {
    f"{name}_s{seed}": run(kappa=kappa, seed=seed)
    for name, kappa in (("base", None), ("free", 0.125))
    for seed in (0, 1)
}


def rows_of(folder: Path) -> list[dict[str, str]]:
    with open(folder / "figure4.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_experiment(tmp_path_factory.mktemp("csv"), RUNS, {})
    write_latent(folder, "free_s0", prior=0.5)
    write_latent(folder, "free_s1", prior=1.0)
    return make_report(folder)


def test_a_row_a_run_then_the_papers(made: Path) -> None:
    rows = rows_of(made)
    names = [row["run"] for row in rows]
    assert names == [*RUNS, "", "", "", ""]
    assert [row["arm"] for row in rows[4:]] == ["the paper"] * 4
    free = rows[2]
    assert (free["arm"], free["kappa_bits"], free["seed"]) == ("free", "0.125", "0")
    assert (free["gap_nats_per_token"], free["elbo_gap_nats_per_token"]) == ("0.1", "0.2")
    assert (free["start_bits"], free["aggregate_at_most_bits"]) == ("4.0", "2.5")
    assert (free["reconstruction_valid"], free["reconstruction_noise"]) == ("0.75", "")
    assert (free["ratio"], free["training_seconds"]) == ("1.0", "4.0")
    assert rows[0]["start_bits"] == rows[0]["kl_bits_per_token"] == rows[0]["ratio"] == ""


def test_arms_have_the_gap_of_the_elbo(made: Path) -> None:
    with open(made / "arms.csv", newline="") as file:
        found = [row["elbo_gap_nats_per_token"] for row in csv.DictReader(file)]
    assert found == ["", "0.2"]


def test_the_papers_are_those_of_its_sequences(made: Path) -> None:
    found = {float(row["kappa_bits"]): row for row in rows_of(made)[4:]}
    for kappa, panel in read_paper(SAMPLES).items():
        assert float(found[kappa]["spread_pinned"]) == panel.figures.spread_pinned
        assert float(found[kappa]["valid_fresh"]) == panel.figures.valid_fresh


def test_what_is_shown_is_the_mean_of_its_rows(made: Path) -> None:
    """In the page's table, in the figure's line, in the summary."""
    free = [row for row in rows_of(made) if row["arm"] == "free"]
    mean = fmean(float(row["valid_fresh"]) for row in free)
    assert mean == 0.75
    text = (made / "report.md").read_text()
    assert "| free | 1/8 | mean of 2 | 2 + 2 × 8 | 0.75 |" in text
    assert "| free | 1/8 | 0 | 2 + 2 × 8 | 0.50 |" in text
    assert "| free | 1/8 | 1 | 2 + 2 × 8 | 1.00 |" in text
    page = (made / "index.html").read_text()
    assert "valid 0.75  ·  spread 2.5 → 2.5  ·  pinned noise –  ·  means of 2 seeds" in page
    (line,) = [x for x in (made / "summary.txt").read_text().splitlines() if x.startswith("free")]
    assert line.split()[-2:] == ["0.75", "1.00"]


def test_there_is_a_file_where_nothing_is_on_the_target_task(tmp_path: Path) -> None:
    folder = make_report(write_experiment(tmp_path, {"base": run("text")}, {}))
    assert rows_of(folder) == []
