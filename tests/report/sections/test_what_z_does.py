"""What z does in text: persistence, swap and steering."""

from dataclasses import replace
from math import nan
from types import SimpleNamespace

import pytest

from ftmodel.analysis.bit_information import NetInformation
from pipelines.artifacts.latent_results import Clusters, Steering
from pipelines.artifacts.results import Estimate
from pipelines.report.sections import bit_information, sequence_z, steering, swap
from pipelines.report.sections.bit_information import cell, persistence
from pipelines.report.style import styles
from pipelines.report.tables import run_row
from tests.support.pages import golden, tables, text_of
from tests.support.results import analysis_of, change, make_report, run, write_experiment


def measured(mean, se=0.01):
    return {"mean": mean, "se": se}


EXCESS = {"bits": 0.125, "se": 0.01, "null_mean": 0.02, "null_sd": 0.003}
ESTIMATE = measured(1.25, 0.5)
PATH = [
    {"share": i / 2, "start": measured(i, 0.1), "end": measured(-i, 0.1), "random": ESTIMATE}
    for i in (1, 2)
]
CONTEXT = {"before": "if a <b", "token": "\n", "after": "a | b_c", "probability": 0.75}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    runs = {"base": run("text"), "free": run("text", kappa=1.0), "old": run("text", kappa=2.0)}
    folder = write_experiment(tmp_path_factory.mktemp("z"), runs, {})
    swapped = {"texts": 12} | dict.fromkeys(("own", "prior", "other", "permuted"), ESTIMATE)
    for i, source in enumerate(("prior", "other", "permuted")):
        swapped[f"{source}_minus_own"] = measured(0.3 + i)
    clusters = {"same": measured(0.7), "different": measured(0.5), "null_95": 0.02}
    codes = {
        "texts": 12, "own": measured(1, 0.1), "other": measured(3, 0.1), "path": PATH,
        "half": measured(0.25, 0.03), "half_random": measured(-0.02),
        "half_minus_random": measured(0.27, 0.02), "clusters": clusters | {"p_value": 0.001},
    }  # fmt: skip
    steered = {"same": measured(0.6), "different": measured(0.75), "ratio": ESTIMATE}
    steered |= {"null_mean": 1.0, "null_95": 1.01, "p_value": 0.001}
    change(folder, "base", "evaluation.json", steering={"same": measured(0.65)})
    change(
        folder, "free", "evaluation.json", swap=swapped, sequence_z=codes, steering=steered,
        persistence={"0": EXCESS, "1": EXCESS | {"bits": -0.5}},
    )  # fmt: skip
    bit = {"bit": 2, "kl": ESTIMATE, "read": EXCESS, "predicted": EXCESS | {"se": None}}
    bit |= {"set": [CONTEXT], "unset": [CONTEXT]}
    change(folder, "free", "details.json", persistence=[EXCESS] * 3, bits=[bit])
    return folder


@pytest.fixture(scope="module")
def analysis(folder):
    return analysis_of(folder)


def test_all_tables_are_those_that_were_found_right(folder, analysis):
    golden("latent", make_report(folder))
    (free,) = [each for each in analysis.runs if each.name == "free"]
    assert run_row(free)["persistence_1_bits"] == -0.5


def test_contexts_are_shown_as_text(analysis):
    text = text_of(bit_information.section(analysis))
    assert "```sample\n0.750 if a <b[\n]a | b_c\n```" in text
    title = "Bit 2: KL 1.2500 ± 0.5000, information 0.1250 ± 0.0100 of the token read, 0.1250 of"
    assert title in text


def test_of_baselines_alone_there_is_no_section(analysis):
    alone = replace(analysis, arms=[arm for arm in analysis.arms if arm.baseline])
    topics = (bit_information, swap, sequence_z, steering)
    assert [topic.section(alone) for topic in topics] == [None] * 4


SAME = Estimate(0.5, 0.1)


def steers(p, ratio=1.25):
    return Steering(SAME, SAME, Estimate(ratio, 0.1), 1.0, 1.1, p_value=p)


def apart(p, same=0.7):
    return Clusters(Estimate(same, 0.1), SAME, null_95=0.02, p_value=p)


def verdicts(found):
    """Of clusters, by run: the verdict, and p in words."""
    rows = sequence_z.of_clusters(found).rows
    return {name: (verdict, p) for name, *_, p, verdict in rows}


def test_where_p_is_large_or_the_sign_wrong_nothing_is_shown():
    for same, p in ((0.7, 0.06), (0.4, 0.01)):
        assert verdicts([("free", apart(p, same))])["free"][0] == "not shown to tell files apart"
    assert steering.verdict(steers(0.001), 0.001) == ["0.001", "z steers"]
    for ratio, p in ((1.25, 0.06), (0.9, 0.01)):
        assert steering.verdict(steers(p, ratio), p) == [str(p), "not shown to steer"]


def test_one_run_of_many_with_a_small_p_shows_nothing(tmp_path):
    """Of 20 tests of nothing one has p = 0.05 by chance."""
    chances = [(f"s{i}", i / 20) for i in range(1, 21)]
    found = [(name, apart(p)) for name, p in chances]
    assert {words for words, _ in verdicts(found).values()} == {"not shown to tell files apart"}
    first, *others = verdicts([("s1", apart(0.001)), *found[1:]]).values()
    assert first == ("tells files apart", "p = 0.001, 0.02 adjusted for 20 runs")
    assert all(words == "not shown to tell files apart" for words, _ in others)
    runs = {name: run("text", kappa=1.0) for name, _ in chances}
    folder = write_experiment(tmp_path, runs, {})
    steered = {"same": measured(0.6), "different": measured(0.75), "ratio": ESTIMATE}
    for name, p in chances:
        change(folder, name, "evaluation.json",
               steering=steered | {"null_mean": 1.0, "null_95": 1.01, "p_value": p})  # fmt: skip
    (table,) = tables(steering.section(analysis_of(folder)).blocks)
    assert {tuple(row[-2:]) for row in table.rows} == {("1", "not shown to steer")}


def test_a_run_of_one_document_has_no_error_to_show():
    one = NetInformation(0.5, nan, 0.1, 0.1)
    assert cell(one) == "0.5000" and cell(None) == "–"
    measured = SimpleNamespace(details=SimpleNamespace(persistence=[one] * 3))
    figure = persistence([SimpleNamespace(name="free", runs=[measured])], styles(["free"]))
    assert figure.axes[0].lines[0].get_ydata().tolist() == [0.5] * 3
