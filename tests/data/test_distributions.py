"""Sources of installed packages: the pinned ones alone, the same everywhere, in an even order."""

import json
import os
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from pipelines import inputs
from pipelines.artifacts import corpus
from pipelines.common.file_listing import canonical, read_pins
from pipelines.config.compose import compose_config
from pipelines.config.data import Distributions, Files, Hub, TextData
from pipelines.config.load import parse
from pipelines.data.build import make_text
from pipelines.data.sources import open_source
from pipelines.host.errors import UserError
from pipelines.host.files import SPLITS
from tests.support.arrivals import arrives
from tests.support.mutants import rejects
from tests.support.requirements import closure, of_make_repro

ROOT = Path(__file__).parents[2]
KEY = "data.x.parts.p"
PINS = "# versions\nbeta_two==2.0 # why\n\nAlpha.One==1.5\ngamma==3\n"


def install(folder, name, version, files, recorded=True):
    """As pip leaves a wheel, with a list of its files."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if recorded:
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages, and a project with its pins."""
    folder = tmp_path / "site"
    one = {f"one/m{i}.py": f"one = {i}\n" for i in range(9)}
    install(folder, "alpha-one", "1.5", {**one, "one/data.json": "{}", "one/tests/t.py": "t\n"})
    shared = {"one/m0.py": "one = 0\n", "two.py": "two\n", "../bin/script.py": "#!/here/python\n"}
    install(folder, "beta-two", "2.0+cpu", shared)
    install(folder, "gamma", "3", {"gamma/__init__.py": "gamma\n"})
    install(folder, "project", "0.1", {"mine.py": "mine\n"})
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "constraints.txt").write_text(PINS)
    return folder


def documents(**settings):
    return [*open_source(KEY, Distributions(**settings)).documents()]


def names(**settings):
    return [name for name, _ in documents(**settings)]


def test_what_is_pinned_is_read_and_nothing_else(site):
    """Not the project itself, not a script outside, which names this machine, and no file twice."""
    expected = {f"alpha-one-1.5/one/m{i}.py" for i in range(9)}
    expected |= {"alpha-one-1.5/one/tests/t.py", "beta-two-2.0/two.py", "gamma-3/gamma/__init__.py"}
    assert set(names()) == expected and len(names()) == len(expected)
    assert dict(documents())["beta-two-2.0/two.py"] == b"two\n"


@rejects('distributions.by_hash: «→b"" and »sha256', "a corpus that begins with whole packages")
def test_files_come_in_the_order_of_a_hash_of_their_paths(site):
    """So that the first ones are of all packages, wherever these are and whatever their names."""
    paths = [name.partition("/")[2] for name in names()]
    assert paths == sorted(paths, key=lambda path: sha256(path.encode()).digest())
    assert paths != sorted(paths)


@arrives("distributions", "source leave_out exclude")
def test_what_is_left_out_and_excluded_is_not_read(site):
    few = names(leave_out=["Beta-Two", "gamma"], exclude=["tests", "one/m[1-8].py"])
    assert few == ["alpha-one-1.5/one/m0.py"]
    below = names(leave_out=["alpha.one"], exclude=["one/"])
    assert below and not any("/one/" in name for name in below)


@arrives("distributions", "pins pattern")
@pytest.mark.parametrize(
    ("pins", "settings", "message"),
    [
        ("delta==1\n", {}, r"p\.pins: constraints.txt has delta 1, which is not installed"),
        ("gamma==3.1\n", {}, r"p\.pins: constraints.txt has gamma 3.1, but 3 is installed"),
        ("beta_two==2.0+cu1\n", {}, r"beta-two 2.0\+cu1, but 2.0\+cpu is installed"),
        ("gamma==3\n", {"leave_out": ["delta"]}, r"p\.leave_out: delta is not pinned"),
        ("gamma>=3\n", {}, r"constraints.txt:1: gamma>=3 is not name==version"),
        ("gamma==3\n", {"pins": "other.txt"}, r"other.txt: cannot be read"),
        ("gamma==3\n", {"pattern": "**/*.txt"}, r"p\.pattern: \*\*/\*\.txt matches no file"),
        ("gamma==3\n", {"exclude": ["gamma"]}, "no file under .* that is not excluded"),
        ("bare==1\n", {}, "bare-1 is installed without a list of its files"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_it(site, pins, settings, message):
    install(site, "bare", "1", {"bare.py": ""}, recorded=False)
    Path("constraints.txt").write_text(pins)
    with pytest.raises(UserError, match=message) as error:
        names(**settings)
    assert "\n" not in str(error.value)


@arrives("files", "weight")
@arrives("hub", "weight")
@arrives("distributions", "weight")
def test_each_kind_of_source_has_its_weight_in_a_mixture(site, tmp_path):
    """Of documents of ten bytes each."""
    install(site, "delta", "1", {f"d/m{i}.py": f"d{i:09}" for i in range(40)})
    Path("constraints.txt").write_text("delta==1\n")
    for name in "fh":
        rows = (json.dumps({"text": f"{name}{i:09}"}) for i in range(40))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    parts = {
        "f": Files(root=str(tmp_path), pattern="f.jsonl", weight=0.5),
        "h": Hub(dataset="json", data_files=[str(tmp_path / "h.jsonl")], weight=1.5),
        "d": Distributions(weight=2.0),
    }
    data = TextData(parts=parts, validation_share=0.3, vocab_size=300, max_bytes=400)
    make_text("x", data, tmp_path / "x")
    kept = [text for split in SPLITS for part in corpus.parts(tmp_path / "x", split)
            for _, text in corpus.documents(part)]  # fmt: skip
    assert Counter(text[:1] for text in kept) == {b"f": 5, b"h": 15, b"d": 20}


def noted(tmp_path):
    part = vars(Distributions())
    data = {"x": {"source": "text", "parts": {"p": part}}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"data": data}))
    inputs.main.callback()
    return json.loads((tmp_path / "data/inputs/x/text.json").read_bytes())


@rejects("PinnedFiles.entries: «0→file.stat().st_mtime_ns»", "packages told by their time")
@pytest.mark.parametrize("large", [False, True])
def test_another_machine_has_the_same_files_and_another_version_has_others(
    site, tmp_path, monkeypatch, large
):
    """By their content, or by names and sizes: not by when they were written."""
    if large:
        monkeypatch.setattr("pipelines.common.file_listing.MAX_FILES_READ", 1)
    before = noted(tmp_path)
    assert before["p"]["files"] == 12
    for path in site.rglob("*.py"):
        os.utime(path, ns=(1, 1))
    assert noted(tmp_path) == before
    (site / "gamma-3.dist-info/METADATA").write_text("Name: gamma\nVersion: 4\n")
    (tmp_path / "constraints.txt").write_text(PINS.replace("gamma==3", "gamma==4"))
    assert noted(tmp_path)["p"]["fingerprint"] != before["p"]["fingerprint"]


def test_what_ships_reads_all_that_the_project_needs_but_one_copy_of_lightning(monkeypatch):
    monkeypatch.chdir(ROOT)
    shipped = parse(compose_config(["experiment=ladder"]), "conf/").data["site_packages"]
    part = shipped.parts["site_packages"]
    left = {canonical(name) for name in part.leave_out}
    pinned = {*read_pins("x", ROOT / part.pins)}
    needed = closure(of_make_repro())
    assert pinned - left == (needed & pinned) - {"pytorch-lightning"}
    assert len(left) == len(part.leave_out) and "free-transformer" not in str(pinned)
