"""Who may import whom, and what code each stage's results depend on: read off the syntax trees and
dvc.yaml, imports within functions included.
"""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from ftmodel.config import KINDS
from pipelines.host.source_code import CODE, stages
from tests import house
from tests.support.mutants import rejects

ROOT = Path(__file__).parents[1]
STAGES = tuple(name for name in stages() if (ROOT / "pipelines" / name).is_dir())
LAYERS = [  # each may import those before it; packages of one layer do not import each other
    ("ftmodel", "host"),
    ("common",),
    ("config",),
    ("artifacts",),
    ("cluster", "compare", "tracking"),
    STAGES,
    ("export", "parallel"),
    ("sweep", "commands"),
]
MAY_MEET = {("sweep", "commands"), ("commands", "sweep")}  # commands may call one another
FTMODEL = [  # floors: each imports only what stands below it
    ("config", "schedule"),
    ("kernels",),
    ("cache", "mapper"),
    ("positions",),
    ("layers",),
    ("designs",),
    ("model",),
    ("inference", "synthetic"),
    ("analysis", "conversion"),
    ("costs",),
]
DECIDES_NO_RESULT = (
    "ftmodel/__init__.py",  # names for other programs
    "pipelines/__init__.py",
    "pipelines/cli.py",
    "pipelines/commands",
    "pipelines/host",
    "pipelines/config",  # what its types say is in params.yaml
    "pipelines/cluster",
    "pipelines/tracking",
    "pipelines/train/__main__.py",  # launching, and what is shown while training goes on
    "pipelines/train/stage.py",
    "pipelines/train/distributed.py",
    "pipelines/train/monitoring.py",
)
AFTER_TRAINING = ("evaluate", "suite", "report")
SEEN_OTHERWISE = {  # code that a stage does not depend on by name
    "train": [
        # for held-out figures, which decide no weight:
        *(f"ftmodel/inference/{name}.py" for name in ("bounds", "filtering", "sequence_bound")),
        *(f"ftmodel/kernels/{name}.py" for name in ("fast_decoder", "weights")),
    ],
    "suite": ["pipelines/common/file_listing.py"],  # names of builders, words of errors
}


def module_path(name: str) -> Path | None:
    """The file of a dotted module of ours; None if it is none."""
    path = ROOT / name.replace(".", "/")
    if path.with_suffix(".py").is_file():
        return path.with_suffix(".py")
    return path / "__init__.py" if (path / "__init__.py").is_file() else None


def imports(path: Path) -> set[str]:
    """Modules of ours that a file imports anywhere, packages on the way included."""
    names = house.Source(path).imported()
    parts = [name.split(".") for name in names if name.startswith(("ftmodel", "pipelines"))]
    every = {".".join(part[:i]) for part in parts for i in range(1, len(part) + 1)}
    return {name for name in every if module_path(name)}


def package_of(module: str) -> str:
    package, *rest = module.split(".")
    if package == "ftmodel" or not rest:
        return "ftmodel"
    if rest[-1] == "__main__":  # a stage's: it is a command
        return "commands"
    return rest[0] if (ROOT / "pipelines" / rest[0]).is_dir() else "commands"


def modules(package: str) -> dict[str, Path]:
    files = (ROOT / package).rglob("*.py")
    return {".".join(f.relative_to(ROOT).with_suffix("").parts): f for f in files}


Layers = list[tuple[str, ...]]


def not_below(package: str, others: dict[str, str], layers: Layers, meet: set) -> list[str]:
    """Of modules whose packages are ``others``, those that ``package`` may not import."""
    level = {name: i for i, packages in enumerate(layers) for name in packages}
    return [
        name
        for name, other in others.items()
        if other != package and (package, other) not in meet
        if level.get(other, 0) >= level.get(package, 0)
    ]


def violations(module: str, path: Path) -> list[str]:
    """What a module imports of a package that is not below its own."""
    names = imports(path) - {"pipelines"}
    packages = {name: package_of(name) for name in names}
    wrong = not_below(package_of(module), packages, LAYERS, MAY_MEET)
    if module.startswith("ftmodel.") and path.stem != "__init__":
        parts = {name: name.split(".")[1] for name in names if name.startswith("ftmodel.")}
        wrong += not_below(module.split(".")[1], parts, FTMODEL, set())
    return [f"{module} imports {name}" for name in wrong]


def test_no_package_imports_one_of_its_own_layer_or_above():
    found = {**modules("ftmodel"), **modules("pipelines")}
    assert len(found) > 100
    assert {package_of(name) for name in found} <= {name for names in LAYERS for name in names}
    assert [line for name, path in found.items() for line in violations(name, path)] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("pipelines.config.schema", "def f():\n    from pipelines.artifacts import results"),
        ("pipelines.train.core.trainer", "from pipelines.commands import compose"),
        ("ftmodel.positions", "from ftmodel.designs import sharing"),
        ("ftmodel.inference.bounds", "from ftmodel.analysis.statistics import jackknife"),
    ],
)
def test_an_import_from_below_to_above_is_noticed(tmp_path, module, line):
    path = tmp_path / "copy.py"
    path.write_text(modules(module.partition(".")[0])[module].read_text())
    assert violations(module, path) == []
    path.write_text(f"{path.read_text()}\n{line}\n")
    assert violations(module, path)


PRODUCT = house.sources(*house.PRODUCT)


@rejects(
    "config.schema: «→from pipelines.config.derived import Budget\n» from pipelines.host.errors",
    "a circle of two modules of a package",
)
def test_nothing_imports_itself_by_way_of_others():
    """Neither modules nor folders; imports within functions and for types included."""
    imported = house.modules(PRODUCT)
    assert sum(map(len, imported.values())) > 500
    assert house.circle(imported) == house.circle(house.packages(PRODUCT)) == []


@rejects('mapper.pack_bits: """«Codes d→Of codes d»', "a docstring that is no sentence of its own")
def test_docstrings_begin_with_what_they_are_about():
    """A docstring that begins with "Of", or hangs on "that of", needs the function's name."""
    assert house.incomplete_docstrings(PRODUCT) == []


ENUMS = {kind.__name__ for kind in KINDS.values()}  # of designs of the latent
WORDS = {word.value for kind in KINDS.values() for word in kind}
IN_DESIGNS = 25  # questions in all


def questions(tree: ast.AST) -> list[str]:
    """Comparisons, cases and checks of a type by which code tells designs of the latent apart."""

    def names_a_design(node: ast.AST) -> bool:
        if isinstance(node, ast.Constant):
            return isinstance(node.value, str) and node.value in WORDS
        name = getattr(node, "id", getattr(node, "attr", None))
        return name in ENUMS

    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left, _, others):
                parts = [left, *others]
            case ast.match_case(pattern):
                parts = [pattern]
            case ast.Call(ast.Name("isinstance" | "issubclass"), parts):
                pass
            case _:
                continue
        if any(names_a_design(each) for part in parts for each in ast.walk(part)):
            found.append(ast.unparse(node))
    return found


def test_only_the_designs_ask_which_design_a_latent_has():
    """Another design is then a part of its own and a line in a table, and changes nothing else."""
    files = [path for top in ("ftmodel", "pipelines", "perf") for path in modules(top).values()]
    asked = {path: questions(ast.parse(path.read_text())) for path in files}
    places = [path.relative_to(ROOT).as_posix() for path, found in asked.items() for _ in found]
    outside = [
        place for place in places if not place.startswith(("ftmodel/designs/", "ftmodel/config.py"))
    ]
    assert outside == []
    assert 20 <= len(places) <= IN_DESIGNS


def test_the_top_of_pipelines_holds_the_command_line_and_a_stage_without_a_folder():
    names = {path.name for path in (ROOT / "pipelines").glob("*.py")}
    assert names == {"__init__.py", "cli.py", "inputs.py"}


def within(path: Path, places: Iterable[str]) -> bool:
    """Whether a file is one of these, or lies in one of these folders."""
    return any(path == (place := ROOT / name) or place in path.parents for name in places)


def closure(stage: str) -> set[Path]:
    """The files of ours that a stage may run, those that YAML names by !function among them."""
    waiting = {f"pipelines.{stage}.__main__"}
    if stage == "suite":
        tasks = "\n".join(path.read_text() for path in (ROOT / "tasks").rglob("*.yaml"))
        waiting |= {
            name.rpartition(".")[0] for name in re.findall(r"!function (pipelines\.\S+)", tasks)
        }
        assert len(waiting) > 1
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        path = module_path(name)
        assert path, name
        if package_of(name) == stage or not within(path, DECIDES_NO_RESULT):
            waiting |= imports(path) - seen
    paths = {path for name in seen if (path := module_path(name))}
    return {path for path in paths if path.stat().st_size}  # not the empty __init__.py


@rejects("dvc.yaml: «- data/inputs/code/pipelines/common/rng_streams.py→»", "no rng_streams in DVC")
@rejects("dvc.yaml: «inference - data/inputs/code/ftmodel/→»analysis", "benchmarks without scoring")
@pytest.mark.parametrize("stage", STAGES)
def test_all_code_of_a_stage_is_among_what_dvc_runs_it_again_for(stage):
    """Its own, or that of the training before it, whose version is in every checkpoint; what other
    stages make may stay the same when their code changes. Or it decides no result.
    """
    trained = stages()["train"] if stage in AFTER_TRAINING else []
    concerned = [*stages()[stage], *trained, *SEEN_OTHERWISE.get(stage, []), *DECIDES_NO_RESULT]
    missing = [path for path in closure(stage) if not within(path, concerned)]
    assert missing == []


@rejects("Bound._missing_: else None«→\n\n    def steps(self) -> int: ...»", "settings compute")
def test_types_of_settings_compute_nothing_that_decides_a_result():
    """What they say is in params.yaml; what follows from that and decides weights is in derived.py,
    on which training depends.
    """
    types = [ROOT / f"pipelines/config/{name}.py" for name in ("data", "schema")]
    classes = [each for path in types for each in ast.parse(path.read_text()).body]
    methods = {
        each.name
        for kind in classes
        for each in getattr(kind, "body", [])
        if isinstance(kind, ast.ClassDef) and isinstance(each, ast.FunctionDef)
    }
    assert methods == {"validate", "__str__", "design_settings", "label", "_missing_"}


READS = {  # besides code
    "data": {"data/inputs/${key}/text.json"},
    "tokenize": {"data/corpus/${key}", "data/inputs/${key}/tokenizer.json"},
    "train": {"data/tokens/${item.data}", "${item.parent}"},
    "evaluate": {
        "checkpoints/${name}/${key}",
        "data/tokens/${item.data}",
        "results/${name}/${key}/curve.csv",
    },
    "suite": {
        "checkpoints/${name}/${key}",
        "data/inputs/suite.json",
        "data/tokens/${item}",
        "tasks",
    },
    "report": {
        *("docs/glossary.md", "docs/measurement", "docs/measurement.md", "docs/paper"),
        *("docs/report.md", "results/${name}"),
    },
}
SETTINGS = {
    "data": {"data.${key}"},
    "tokenize": {"data.${key}"},
    "train": {
        *("compute.precision", "evaluation.every_tokens", "models.${item.model}", "name"),
        "runs.${key}",
    },
    "evaluate": {"evaluation", "name"},
    "suite": {"name", "suite"},
    "report": {
        *(
            "data",
            "evaluation",
            "expectation",
            "models",
            "name",
            "question",
            "runs",
            "smallest_effect",
            "suite",
        ),
        "suite_runs",
    },
}


@rejects("dvc.yaml: «compute.precision,→»", "training without its precision in DVC")
@rejects("dvc.yaml: «results/${name}/${key}/curve.csv -→»", "evaluation without the curve in DVC")
@pytest.mark.parametrize("stage", STAGES)
def test_dvc_runs_a_stage_again_for_all_that_it_reads(stage):
    written = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"][stage]
    written = written.get("do", written)
    deps = {dep for dep in written["deps"] if not dep.startswith(f"{CODE}/")}
    assert (deps, set(written["params"])) == (READS[stage], SETTINGS[stage])


NAMED_FILE = re.compile(r"(?<![\w<>.*/])((?:\w+/)*\w+\.py)\b")


def test_files_that_code_names_exist():
    """In docstrings, comments and messages, by as much of their path as is given."""
    folders = (*house.PRODUCT, "docs", "tasks", "tests")
    paths = [
        f"/{path}" for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] in folders
    ]
    missing = [
        f"{source.path}: {name}"
        for source in PRODUCT
        for name in NAMED_FILE.findall(source.text)
        if not any(path.endswith(f"/{name}") for path in paths)
    ]
    assert missing == []
