"""What runs again after a change, by DVC's own account of a finished project whose outputs are made
up: exactly the stages that read what changed.
"""

import ast
import re
from contextlib import ExitStack, chdir, contextmanager

import pytest
from dvc.repo import Repo

from tests.support.mutants import rejects
from tests.support.project_copy import Project

MAKE_UP = """
from pathlib import Path
from dvc.repo import Repo

repo = Repo(".")
for stage in repo.index.stages:
    for out in stage.outs:
        path = Path(out.fs_path)
        if not path.exists():
            file = path if path.suffix else path / "made_up.bin"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(file))
repo.commit(force=True)
"""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """The quickstart, as if all of it had run."""
    project = Project(tmp_path_factory.mktemp("reruns") / "project")
    project.ok("python", "-m", "pipelines.compose", "experiment=quickstart")
    project.ok("python", "-m", "pipelines.inputs")
    project.ok("python", "-c", MAKE_UP)
    assert changed_stages(project) == set()
    return project


def changed_stages(project):
    """What `dvc status` says of each stage: names, without those of runs or data entries."""
    with chdir(project.folder), Repo(".") as repo:
        return {name for name in repo.status() if name != "sources"}


def groups(stages):
    return {name.partition("@")[0] for name in stages}


@contextmanager
def edited(project, path, change):
    """The project with another text in one of its files."""
    file = project.folder / path
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


TRAIN_AND_REPORT = {"train", "report"}  # the report names every setting of runs and models
STDLIB = {"data@stdlib", "tokenize@stdlib", "report"}
BUDGETS = "budgets: list[int] = field(default_factory=lambda: [99999])"
DEFAULTS = [
    ("schema", "weight_decay: float = 0.01", "weight_decay: float = 0.02", TRAIN_AND_REPORT),
    ("schema", "budgets: list[int] = field(default_factory=list)", BUDGETS, TRAIN_AND_REPORT),
    ("schema", "Precision = Precision.auto", "Precision = Precision.bf16", {"train"}),
    ("schema", "max_failures: int = 3", "max_failures: int = 4", set()),
    ("schema", "groups: int = 64", "groups: int = 32", {"evaluate", "report"}),
    ("suite", "samples: int = 8", "samples: int = 4", {"suite", "report"}),
    ("data", "deduplicate: bool = True", "deduplicate: bool = False", STDLIB),
]


@pytest.mark.parametrize(("module", "old", "new", "stages"), DEFAULTS, ids=[d[1] for d in DEFAULTS])
def test_a_changed_default_runs_again_what_reads_it(pipeline, module, old, new, stages):
    with edited(pipeline, "params.yaml", lambda _: composed(pipeline, module, old, new)):
        status = changed_stages(pipeline)
    assert (status if "data@stdlib" in stages else groups(status)) == stages
    if "train" in stages:  # a default is that of every run
        assert {name for name in status if name.startswith("train@")} == all_runs(pipeline)


@pytest.mark.parametrize(
    "override",
    [
        "question=null",
        "question='Another?'",
        "expectation=[]",
        "expectation=[{arm: free_k8, than: baseline, bound: lower}]",
    ],
)
def test_another_question_or_expectation_runs_the_report_again_alone(pipeline, override):
    params = pipeline.folder / "params.yaml"
    before = params.read_text()
    try:
        pipeline.ok("python", "-m", "pipelines.compose", "experiment=quickstart", override)
        assert params.read_text() != before
        assert changed_stages(pipeline) == {"report"}
    finally:
        params.write_text(before)


def composed(project, module, old, new):
    """What params.yaml becomes with another default."""
    params = project.folder / "params.yaml"
    before = params.read_text()
    with edited(project, f"pipelines/config/{module}.py", replaced(old, new)):
        project.ok("python", "-m", "pipelines.compose", "experiment=quickstart")
    after = params.read_text()
    params.write_text(before)
    return after


def all_runs(project):
    return {f"train@{path.name}" for path in (project.folder / "checkpoints/quickstart").iterdir()}


def documented(text):
    """Other comments and docstrings."""
    tree = ast.parse(text)
    lines = text.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            if not ast.get_docstring(node) or (first := node.body[0]).lineno != first.end_lineno:
                continue
            line = lines[first.lineno - 1]
            lines[first.lineno - 1] = f'{line[: first.col_offset]}"""Another sentence."""'
    return "\n".join([*lines, "# a remark\n"])


def reworded(text):
    """Another message: the first text in quotes that is words alone and no docstring."""
    tree = ast.parse(text)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    words = next(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
        and re.fullmatch(r"[\w:, ]+", node.value) and " " in node.value.strip()
    )  # fmt: skip
    return replaced(words, words.replace(" ", " as it were, ", 1))(text)


def renumbered(text):
    """Another constant: the first number in a module."""
    node = next(
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and type(node.value) in (int, float)
    )
    lines = text.splitlines(keepends=True)
    line = lines[node.lineno - 1].encode()  # columns are counted in bytes
    number = str(node.value + 1).encode()
    lines[node.lineno - 1] = (
        line[: node.col_offset] + number + line[node.end_col_offset :]
    ).decode()
    return "".join(lines)


LAUNCHING = [
    ("stage", renumbered),
    ("distributed", reworded),
    ("distributed", renumbered),
    ("progress", reworded),
    ("progress", renumbered),
]
EDITS = [
    (
        "pipelines/train/core/module.py",
        replaced("> 1 else 0.0", "> 1 else 0.1"),  # in the optimizer
        ["train"],
    ),
    ("pipelines/train/core/shuffle.py", renumbered, ["train"]),  # the order of the batches
    ("ftmodel/model/mapper.py", renumbered, ["train"]),
    ("ftmodel/inference/generate.py", renumbered, ["evaluate", "suite"]),
    ("pipelines/tokenize/encode.py", renumbered, ["tokenize"]),
    ("pipelines/report/page.py", renumbered, ["report"]),
    ("pipelines/config/arms.py", renumbered, ["report"]),  # which runs are an arm
]


@pytest.mark.parametrize(("path", "change", "stages"), EDITS, ids=[path for path, *_ in EDITS])
def test_an_edit_of_code_runs_again_the_stages_whose_results_it_decides(
    pipeline, path, change, stages
):
    with edited(pipeline, path, change):
        said = pipeline.ok("python", "-m", "pipelines.inputs")
        status = groups(changed_stages(pipeline))
    pipeline.ok("python", "-m", "pipelines.inputs")
    assert status == set(stages)
    assert said == f"code changed: {path}; this runs again: {', '.join(stages)}\n"


def test_comments_docstrings_and_what_is_shown_while_training_run_nothing_again(pipeline):
    """In all modules; in those that launch and show a training, messages and numbers as well."""
    with ExitStack() as edits:
        for package in ("ftmodel", "pipelines"):
            for file in sorted((pipeline.folder / package).rglob("*.py")):
                path = file.relative_to(pipeline.folder).as_posix()
                edits.enter_context(edited(pipeline, path, documented))
        for name, change in LAUNCHING:
            edits.enter_context(edited(pipeline, f"pipelines/train/{name}.py", change))
        said = pipeline.ok("python", "-m", "pipelines.inputs")
        status = changed_stages(pipeline)
    pipeline.ok("python", "-m", "pipelines.inputs")
    assert (said, status) == ("", set())


@rejects(
    ".dvcignore",
    "/data/**/*.lock\n",
    "",
    "files of locks, which no remote has, among what the report depends on",
)
def test_what_a_stage_leaves_beside_its_outputs_runs_nothing_again(pipeline):
    """It is in no remote: a clone has none of it."""
    left = [pipeline.folder / name for name in (
        "data/tokens/target.lock", "data/tokens/stdlib.partial/part", "data/corpus/stdlib.done",
        "results/quickstart/baseline/suite_samples.lock", "checkpoints/quickstart/free_k1.lock",
    )]  # fmt: skip
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    try:
        assert changed_stages(pipeline) == set()
    finally:
        for path in left:
            path.unlink()


def test_dvc_repro_runs_the_training_of_a_changed_run_alone(pipeline):
    change = replaced("    kappa_bits: 0.125\n", "    kappa_bits: 0.25\n")
    with edited(pipeline, "params.yaml", change):
        said = pipeline.ok("dvc", "repro", "--dry")
    runs = [line.split("'")[1] for line in said.splitlines() if line.startswith("Running stage")]
    assert runs == ["sources", "train@free_k1_8", "report"]
