"""What runs again after a change, by DVC's own account of a finished project whose outputs are made
up: exactly the stages that read what changed.
"""

import re
from contextlib import ExitStack, chdir, contextmanager
from functools import cache
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo
from dvc.utils.serialize import _yaml

from pipelines import inputs
from pipelines.host import source_code
from tests.support.commands import call
from tests.support.mutants import rejects
from tests.support.project_copy import Project

COMPOSED = (
    *("experiment=smoke", "question='Which is lower?'"),
    "expectation=[{arm: free_k1, than: baseline, bound: lower}]",
)
parse_once = cache(_yaml.parse_yaml)  # DVC parses params.yaml again for each stage


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The smoke experiment, as if all of it had run."""
    project = Project(tmp_path_factory.mktemp("reruns") / "project")
    with chdir(project.folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_code, "ROOT", project.folder)
        patch.setattr(_yaml, "parse_yaml", parse_once)
        call("compose", *COMPOSED)
        inputs.main.callback()
        with Repo(".") as repo:
            for out in (out for stage in repo.index.stages for out in stage.outs):
                path = Path(out.fs_path)
                if not path.exists():
                    file = path if path.suffix else path / "made_up.bin"
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(str(file))
            repo.commit(force=True)
        assert changed_stages() == set()
    return project


@pytest.fixture(autouse=True)
def inside(project, monkeypatch):
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(source_code, "ROOT", project.folder)
    monkeypatch.setattr(_yaml, "parse_yaml", parse_once)


def changed_stages():
    """What `dvc status` says of each stage: names, without those of runs or data entries."""
    with Repo(".") as repo:
        return {name for name in repo.status() if name != "sources"}


def version_of_training():
    """What a run's specification has of the code: other weights are of another specification."""
    return source_code.code_version.__wrapped__("train")


def groups(stages):
    return {name.partition("@")[0] for name in stages}


@contextmanager
def edited(path, change):
    """The project with another text in one of its files."""
    file = Path(path)
    before = file.read_text()
    after = change(before)
    assert after != before
    file.write_text(after)
    try:
        yield
    finally:
        file.write_text(before)


def replaced(old, new):
    def change(text):
        assert text.count(old) == 1, (old, text.count(old))
        return text.replace(old, new)

    return change


DEFAULTS = [  # the module and the beginning of a field, its default, another, and who reads it
    ("schema", "weight_decay: float = limited(", "0.01", "0.02", {"train", "report"}),
    ("schema", "budgets: list[int] = field(default_factory=", "list", "lambda: [4096]",
     {"train", "report"}),  # which names every setting of runs and models
    ("schema", "precision: Precision = Precision.", "auto", "bf16", {"train"}),
    ("schema", "max_failures: int = limited(", "3", "4", set()),
    ("schema", "filters: int = limited(", "2", "4", {"evaluate", "report"}),
    ("schema", "batch_tokens: int = limited(", "16_384", "8_192", {"suite", "report"}),
    ("data", "deduplicate: bool = ", "True", "False", {"data", "tokenize", "report"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def other_defaults(project):
    """What params.yaml becomes with all of these defaults."""
    with chdir(project.folder), ExitStack() as edits:
        edits.enter_context(edited("params.yaml", lambda text: text + "#"))
        for module, field, old, new, _ in DEFAULTS:
            path = f"pipelines/config/{module}.py"
            edits.enter_context(edited(path, replaced(field + old, field + new)))
        project.compose(*COMPOSED[1:])
        return yaml.safe_load(Path("params.yaml").read_text())


def with_values(params, others, key):
    """``params`` with the values that ``others`` has under keys of this name."""
    if not isinstance(params, dict):
        return params
    return {
        name: others[name] if name == key else with_values(value, others[name], key)
        for name, value in params.items()
    }


@pytest.mark.parametrize(
    ("key", "stages"), [(field.partition(":")[0], stages) for _, field, *_, stages in DEFAULTS]
)
def test_a_changed_default_runs_again_what_reads_it(other_defaults, key, stages):
    def change(text):
        before = yaml.safe_load(text)
        after = with_values(before, other_defaults, key)
        assert after != before
        return yaml.safe_dump(after)

    with edited("params.yaml", change):
        status = changed_stages()
    assert groups(status) == stages
    if "data" in stages:
        assert status == {"data@stdlib", "tokenize@stdlib", "report"}
    if "train" in stages:  # a default is that of every run
        runs = {f"train@{path.name}" for path in Path("checkpoints/smoke").iterdir()}
        assert {name for name in status if name.startswith("train@")} == runs


@pytest.mark.parametrize(
    "statement",
    [
        {"question": "Another?"},
        {"smallest_effect": 0.01},
        {"expectation": [{"arm": "free_k1_8", "than": "baseline", "bound": "lower"}]},
    ],
)
def test_another_question_or_expectation_runs_the_report_again_alone(statement):
    with edited("params.yaml", lambda text: yaml.safe_dump(yaml.safe_load(text) | statement)):
        assert changed_stages() == {"report"}


def documented(text):
    """Other comments and docstrings."""
    return re.sub(r'^( *)"""(?=\w)', r'\1"""In other words: ', text, flags=re.M) + "# a remark\n"


def extended(text):
    return text + "\nANOTHER = 1\n"


@pytest.mark.parametrize(
    ("path", "stages"),
    [
        ("pipelines/train/core/module.py", ["train"]),
        ("pipelines/config/derived.py", ["train"]),  # architecture, budgets
        ("ftmodel/mapper.py", ["train"]),
        ("ftmodel/inference/generate.py", ["evaluate", "suite"]),
        ("ftmodel/inference/decoder.py", ["evaluate", "suite"]),
        ("pipelines/tokenize/encode.py", ["tokenize"]),
        ("pipelines/report/page.py", ["report"]),
        ("pipelines/config/arms.py", ["report"]),  # which runs are an arm
    ],
)
def test_an_edit_of_code_runs_again_the_stages_whose_results_it_decides(capsys, path, stages):
    version = version_of_training()
    with edited(path, extended):
        inputs.main.callback()
        said = capsys.readouterr().out
        status = groups(changed_stages())
        assert (version_of_training() != version) == ("train" in stages)
    inputs.main.callback()
    assert status == set(stages)
    assert said == (
        f"code changed; this runs again: {', '.join(stages)}\n  {path}: `ANOTHER = 1` is new\n"
    )


def test_comments_docstrings_and_what_is_shown_while_training_run_nothing_again(capsys):
    """In those that launch, show and track a training, code as well."""
    version = version_of_training()
    with ExitStack() as edits:
        for package in ("ftmodel", "pipelines"):
            for path in sorted(Path(package).rglob("*.py")):
                edits.enter_context(edited(path, documented))
        for name in ("stage", "distributed", "monitoring", "../tracking/live"):
            edits.enter_context(edited(f"pipelines/train/{name}.py", extended))
        inputs.main.callback()
        assert changed_stages() == set()
        assert version_of_training() == version
    inputs.main.callback()
    assert capsys.readouterr().out == ""


@rejects(".dvcignore: «/data/**/*.lock→»", "files of locks among what the report depends on")
@rejects(".dvcignore: «.*→»", "hidden files among what stages depend on")
def test_what_a_stage_leaves_beside_its_outputs_runs_nothing_again():
    """It is in no remote: a clone has none of it."""
    left = [Path(name) for name in (
        "data/tokens/target.lock", "data/tokens/stdlib.partial/part",
        "results/smoke/baseline/suite_samples.lock", "checkpoints/smoke/free_k1.lock",
        "tasks/mini/.words.yaml.swp", "tasks/mini/words.yaml~", "docs/paper/.DS_Store",
        "docs/paper/#README.md#", "report/smoke/figures/.ipynb_checkpoints/a.png",
    )]  # fmt: skip
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    try:
        assert changed_stages() == set()
    finally:
        for path in left:
            path.unlink()


def test_dvc_repro_runs_the_training_of_a_changed_run_alone():
    change = replaced("    kappa_bits: 0.125\n", "    kappa_bits: 0.25\n")
    with edited("params.yaml", change), Repo(".") as repo:
        stages = repo.reproduce(dry=True)
    assert [stage.addressing for stage in stages] == ["sources", "train@free_k1_8", "report"]
