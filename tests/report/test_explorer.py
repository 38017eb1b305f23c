"""What explorer.html is given, and that a model cannot write anything else into the page."""

import json
import re

from pipelines.report.html import explorer_families, generations
from tests.compare.made_up import baseline
from tests.support.mutants import rejects
from tests.support.pages import numbers
from tests.support.results import analysis_of, change, run, write_experiment

DATA = re.compile(r'<script type="application/json" id="generations">(.*?)</script>', re.DOTALL)


def families(report):
    return json.loads(DATA.search((report / "explorer.html").read_text())[1])


def test_every_arm_of_a_data_set_has_the_same_prompts_and_is_shown_by_its_first_seed(small, seeded):
    target, text = families(small)
    assert (target["name"], target["target"], target["prompts"]) == ("target", True, ["A>", "B>"])
    assert (text["name"], text["target"], text["prompts"]) == ("text", False, ["if a <b> &", "for"])
    pinned = {
        arm["title"]: [len(each["pinned"]) for each in arm["generations"]] for arm in target["arms"]
    }
    assert pinned == {
        "base: no latent": [0, 0],
        "free_k1_8: κ = 1/8 bit per token": [3, 3],
        "free_wide: κ = 3/10 bit per token": [3, 3],
    }
    (several,) = families(seeded)
    assert [numbers(arm["seeds"]) for arm in several["arms"]] == [["0", "2"]] * 4


@rejects(
    "explorer.html.jinja: tojson «→| string | replace('\\\\u003c', '<') | safe »",
    "what a model writes put into the page as it is",
)
@rejects("html.generations: «printable→str», g.fresh", "a model's control characters")
def test_what_a_model_writes_cannot_leave_the_data(small):
    page = (small / "explorer.html").read_text()
    assert page.count("</script>") == 2 and "<img" not in page and "\x04" not in page
    written = families(small)[1]["arms"][0]["generations"][0]["fresh"][0]
    assert written == "\n\ufffd end ``` of</script><img src=x onerror=alert(1)>a"


def test_arms_with_other_prompts_are_apart(tmp_path):
    runs = {"sums": run(), "base": run("text"), "none": run("text", 0.5)}
    runs["long"] = run("text", model="large")
    folder = write_experiment(tmp_path, runs, {})
    other = [{"prompt": "longer", "fresh": ["x"]}]
    change(folder, "long", "details.json", generations=other)
    change(folder, "none", "details.json", generations=[])
    found = explorer_families(analysis_of(folder))
    assert [(family["name"], family["prompts"], len(family["arms"])) for family in found] == [
        ("target", ["A>", "B>"], 1),
        ("text (small)", ["if a <b> &", "for"], 1),
        ("text (large)", ["longer"], 1),
    ]


@rejects("html.left_by_z: «and found.fresh.valid > MOSTLY→»", "broken generations shown first")
@rejects("html.left_by_z: «1 /→» found.steering", "the z shown that steers least")
def test_the_page_begins_with_the_arm_whose_pinned_z_leaves_least(tmp_path):
    arms = {"weak": (0.9, 8.0, 1.1), "plain": (0.9, 4.0, 3.0), "broken": (0.1, 1.0, 2.0)}
    runs = {"base": run(), "words": run("text")}
    runs |= {f"{name}_{data}": run(data, 0.5) for name in arms for data in ("target", "text")}
    folder = write_experiment(tmp_path, runs, {})
    for name, (valid, spread, ratio) in arms.items():
        scores = {"valid": valid, "noise": 0.1, "groups": 2, "group_size": 8}
        change(folder, f"{name}_target", "evaluation.json",
               fresh=scores | {"spread": 10.0}, pinned=scores | {"spread": spread})  # fmt: skip
        steering = {key: {"mean": ratio, "se": 0.1} for key in ("same", "different", "ratio")}
        change(folder, f"{name}_text", "evaluation.json", steering=steering)
    for family in explorer_families(analysis_of(folder)):
        assert family["arms"][family["first"]]["title"].startswith("plain")


def test_of_several_seeds_the_first_is_shown_and_named():
    words = [generations(baseline("base", *[0.5] * seeds))["seeds"] for seeds in (1, 2)]
    assert words == ["by seed 0", "by seed 0, the first of 2 seeds"]


def test_without_generations_the_page_says_so(bare):
    page = (bare / "explorer.html").read_text()
    assert "<form" not in page
    assert '"explorer.html"' not in (bare / "index.html").read_text()
