"""What explorer.html is given, and that a model cannot write anything else into the page."""

import json
import re
from html import unescape

from tests.support.mutants import rejects
from tests.support.results import change, make_report, run, write_experiment

DATA = re.compile(r'<script type="application/json" id="generations">(.*?)</script>', re.DOTALL)


def families(report):
    return json.loads(DATA.search((report / "explorer.html").read_text())[1])


def test_every_arm_of_a_data_set_has_the_same_prompts(small):
    target, text = families(small)
    assert (target["name"], target["target"], target["prompts"]) == ("target", True, ["A>", "B>"])
    assert (text["name"], text["target"], text["prompts"]) == ("text", False, ["if a <b> &", "for"])
    assert [arm["title"] for arm in target["arms"]] == [
        "base: no latent",
        "free_k1_8: κ = 1/8 bit per token",
        "free_wide: κ = 3/10 bit per token",
    ]
    pinned = [[len(entry["pinned"]) for entry in arm["generations"]] for arm in target["arms"]]
    assert pinned == [[0, 0], [3, 3], [3, 3]]


def test_several_seeds_are_shown_by_the_first(seeded):
    (text,) = families(seeded)
    assert {arm["seeds"] for arm in text["arms"]} == {"by seed 0, the first of 2 seeds"}
    assert len(text["arms"]) == 4


@rejects(
    "report/templates/explorer.html.jinja",
    "{{ families | tojson }}",
    "{{ families | tojson | string | replace('\\\\u003c', '<') | safe }}",
    "what a model writes put into the page as it is",
)
@rejects(
    "report/explorer.py",
    "[*map(printable, g.fresh)]",
    "g.fresh",
    "control characters of a model on the page",
)
def test_what_a_model_writes_cannot_leave_the_data(small):
    page = (small / "explorer.html").read_text()
    assert page.count("</script>") == 2 and "<img" not in page and "\x04" not in page
    written = families(small)[1]["arms"][0]["generations"][0]["fresh"][0]
    assert written == "\n\ufffd end ``` of</script><img src=x onerror=alert(1)>a"


def test_arms_with_other_prompts_are_apart(tmp_path):
    runs = {"base": run("text"), "long": run("text", model="large"), "none": run("text", 0.5)}
    folder = write_experiment(tmp_path, runs, {})
    other = [{"prompt": "longer", "fresh": ["x"]}]
    change(folder, "long", "details.json", generations=other)
    change(folder, "none", "details.json", generations=[])
    found = families(make_report(folder))
    assert [(f["name"], f["prompts"], len(f["arms"])) for f in found] == [
        ("text (small)", ["if a <b> &", "for"], 1),
        ("text (large)", ["longer"], 1),
    ]


def test_without_generations_the_page_says_so(tmp_path):
    folder = write_experiment(tmp_path, {"base": run()}, {})
    change(folder, "base", "details.json", generations=[])
    report = make_report(folder)
    page = (report / "explorer.html").read_text()
    assert "has kept no generations" in page and "<form" not in page
    assert "explorer.html" not in (report / "index.html").read_text()


def test_it_says_that_draws_are_no_evidence(small):
    said = " ".join(unescape(re.sub("<[^>]*>", "", (small / "explorer.html").read_text())).split())
    assert "no evidence that one arm, or one z, differs from another" in said
