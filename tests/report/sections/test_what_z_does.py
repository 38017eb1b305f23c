"""What z does in text: persistence, swap and steering, on both pages."""

from dataclasses import replace
from math import nan
from pathlib import Path

import pytest

from ftmodel.analysis.bit_information import NetInformation
from pipelines.artifacts.latent_results import Clusters, Steering
from pipelines.artifacts.results import Estimate
from pipelines.report.sections import bit_information, sequence_z, steering, swap
from pipelines.report.sections.bit_information import cell, persistence
from pipelines.report.style import COLOURS, styles
from tests.support.results import analysis_of, change, make_report, run, write_experiment

EXCESS = {"bits": 0.125, "se": 0.01, "null_mean": 0.02, "null_sd": 0.003}
ESTIMATE = {"mean": 1.25, "se": 0.5}
PATH = [{"share": i / 2, "start": {"mean": i, "se": 0.1}, "end": {"mean": -i, "se": 0.1},
         "random": ESTIMATE} for i in (1, 2)]  # fmt: skip
CONTEXT = {"before": "if a <b", "token": "\n", "after": "a | b_c", "probability": 0.75}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = {"base": run("text"), "free": run("text", kappa=1.0), "old": run("text", kappa=2.0)}
    folder = write_experiment(tmp_path_factory.mktemp("z"), runs, {})
    texts = {"texts": 12, "own": ESTIMATE, "prior": ESTIMATE, "other": ESTIMATE}
    differences = {f"{source}_minus_own": {"mean": 0.3 + i, "se": 0.01}
                   for i, source in enumerate(("prior", "other", "permuted"))}  # fmt: skip
    steered = {"same": {"mean": 0.6, "se": 0.01}, "different": {"mean": 0.75, "se": 0.01},
               "ratio": ESTIMATE, "null_mean": 1.0, "null_95": 1.01, "p_value": 0.001}  # fmt: skip
    change(folder, "base", "evaluation.json", steering={"same": {"mean": 0.65, "se": 0.01}})
    change(
        folder, "free", "evaluation.json", swap=texts | {"permuted": ESTIMATE} | differences,
        sequence_z={"texts": 12, "own": {"mean": 1, "se": 0.1}, "other": {"mean": 3, "se": 0.1},
                    "path": PATH, "half": {"mean": 0.25, "se": 0.03},
                    "half_random": {"mean": -0.02, "se": 0.01},
                    "half_minus_random": {"mean": 0.27, "se": 0.02}, "clusters": {
            "same": {"mean": 0.7, "se": 0.01}, "different": {"mean": 0.5, "se": 0.01},
            "null_95": 0.02, "p_value": 0.001}},
        steering=steered, persistence={"0": EXCESS, "1": EXCESS | {"bits": -0.5}},
    )  # fmt: skip
    bit = {"bit": 2, "kl": ESTIMATE, "read": EXCESS, "predicted": EXCESS | {"se": None},
           "set": [CONTEXT], "unset": [CONTEXT]}  # fmt: skip
    change(folder, "free", "details.json", persistence=[EXCESS] * 3, bits=[bit])
    return folder


def test_runs_that_were_measured_are_in_the_tables(folder: Path) -> None:
    analysis = analysis_of(folder)
    bits, swapped, steers = (s.section(analysis) for s in (bit_information, swap, steering))
    assert bits and swapped and steers
    assert bits.table[0] == ["run", "lag 0", "lag 1", "subtracted at lag 1", "its sd"]
    assert bits.table[1:] == [
        ["free", "0.1250 ± 0.0100", "−0.5000 ± 0.0100", "0.0200", "0.0030"]
    ]  # fmt: skip
    assert swapped.table[1:] == [
        ["free", "1", "12", "1.2500 ± 0.5000", "0.3000 ± 0.0100", "1.3000 ± 0.0100",
         "2.3000 ± 0.0100"]
    ]  # fmt: skip
    assert steers.table[1:] == [
        ["base", "–", "0.6500 ± 0.0100", *"–" * 5],
        ["free", "1", "0.6000 ± 0.0100", "0.7500 ± 0.0100", "1.2500 ± 0.5000", "1.0000", "1.0100",
         "0.001"],
    ]  # fmt: skip


def test_one_z_a_sequence_is_in_a_table_and_in_words(folder: Path) -> None:
    z = sequence_z.section(analysis_of(folder))
    assert z
    assert z.table == [
        ["run", "κ", "cross-entropy of", "with the first z", "50 % of bits", "100 % of bits"],
        ["free", "1", "text at the start", *(f"{i}.0000 ± 0.1000" for i in ("1", "1", "2"))],
        ["free", "1", "text at the end", *(f"{i}.0000 ± 0.1000" for i in ("3", "−1", "−2"))],
        ["free", "1", "text at the start, random bits", "1.0000 ± 0.1000",
         *["1.2500 ± 0.5000"] * 2],
    ]  # fmt: skip
    assert z.sentences == [
        "free: z tells files apart: bits agree in 70.0 ± 1.0 % of pairs of texts of one file and "
        "50.0 ± 1.0 % of two; when texts are permuted among files the excess is below 2.0 "
        "percentage points in 95 % of cases (p = 0.001).",
        "free: replacing half of the bits by those of another text’s z recovers 25 ± 3 % of what "
        "replacing all of them gains that text, as many bits changed at random −2 ± 1 %: a "
        "difference of 27 ± 2 percentage points.",
    ]
    assert (
        "no language-model loss, and not to be" in (make_report(folder) / "report.md").read_text()
    )


@pytest.mark.parametrize(("same", "p"), [(0.7, 0.06), (0.4, 0.01)])
def test_z_is_not_shown_to_tell_files_apart(same: float, p: float) -> None:
    figures = Clusters(Estimate(same, 0.1), Estimate(0.5, 0.1), null_95=0.02, p_value=p)
    (sentence,) = sequence_z.of_clusters([("free", figures)])
    assert sentence.startswith("free: z is not shown to tell files apart")


def test_one_run_of_many_with_a_small_p_shows_nothing() -> None:
    """Of 20 tests of nothing one has p = 0.05 by chance."""
    same = Estimate(0.5, 0.1)
    steered = [
        (f"s{i}", Steering(same, same, Estimate(1.25, 0.1), 1.0, 1.1, p_value=i / 20))
        for i in range(1, 21)
    ]
    (sentence,) = steering.findings(steered)
    assert sentence.startswith("z is not shown to steer what is generated: s1, s2, ")
    assert sentence.endswith("(adjusted p ≥ 1).")
    apart = [
        (name, Clusters(Estimate(0.7, 0.1), same, 0.02, s.p_value or 0)) for name, s in steered
    ]
    assert all("is not shown" in sentence for sentence in sequence_z.of_clusters(apart))
    apart[0] = "s1", replace(apart[0][1], p_value=0.001)
    first, *others = sequence_z.of_clusters(apart)
    assert first.startswith("s1: z tells files apart: bits agree in 70.0 ± 10.0 % ")
    assert first.endswith("(p = 0.001, 0.02 adjusted for 20 runs).")
    assert all("is not shown" in sentence for sentence in others)


def test_the_pages_show_contexts_as_text(folder: Path) -> None:
    report = make_report(folder)
    page, markdown = ((report / name).read_text() for name in ("index.html", "report.md"))
    assert "<b>if a &lt;b</b>[\n]<b>a | b_c</b>" in page
    assert "| highest | 0.750 | if a &lt;b |  | a \\| b_c |" in markdown
    title = "Bit 2: KL 1.2500 ± 0.5000, information 0.1250 ± 0.0100 of the token read, 0.1250 of"
    assert title in page and title in markdown
    assert "![Information of the bits of z about the token at each lag, on text]" in markdown
    assert "persistence_1_bits" in (report / "runs.csv").read_text().splitlines()[0]


def test_of_baselines_alone_there_is_no_section(tmp_path: Path) -> None:
    write_experiment(tmp_path, {"base": run("text")}, {})
    change(tmp_path, "base", "evaluation.json", steering={"same": {"mean": 0.65, "se": 0.01}})
    analysis = analysis_of(tmp_path)
    assert [s.section(analysis) for s in (bit_information, swap, sequence_z, steering)] == [
        None
    ] * 4


@pytest.mark.parametrize(
    ("ratio", "p", "words"),
    [
        (1.25, 0.001, "different z lie 25.0 % further apart than with the same (p = 0.001)."),
        (1.25, 0.06, "z is not shown to steer what is generated: free (p = 0.06)."),
        (0.9, 0.01, "z is not shown to steer what is generated: free (p = 0.01)."),
    ],
)
def test_z_steers_or_is_not_shown_to(ratio: float, p: float, words: str) -> None:
    same = Estimate(0.5, 0.1)
    figures = Steering(same, same, Estimate(ratio, 0.1), 1.0, 1.1, p_value=p)
    (sentence,) = steering.findings([("free", figures)])
    assert sentence.endswith(words)


def test_a_run_of_one_document_has_no_error_to_show() -> None:
    assert cell(NetInformation(0.5, nan, 0.1, 0.1)) == "0.5000" and cell(None) == "–"
    figure = persistence({"free": [[NetInformation(0.5, nan, 0.1, 0.1)] * 3]}, styles(["free"]))
    assert figure.axes[0].lines[0].get_ydata().tolist() == [0.5] * 3


def test_more_arms_than_colours_have_a_panel_each() -> None:
    seeds = [[NetInformation(0.5, 0.1, 0.1, 0.1)] * 3] * 2
    arms = {f"free_{i}": seeds for i in range(len(COLOURS) + 1)}
    panels = [axes for axes in persistence(arms, styles(arms)).axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels] == list(arms)
    assert {len(axes.lines) for axes in panels} == {5}  # two curves, their nulls, and 0
