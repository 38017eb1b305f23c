"""Odd and broken configurations from a seed, and what becomes of each."""

import copy
import gc
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import asdict, replace
from functools import cache
from math import inf, isfinite, nan
from pathlib import Path
from random import Random
from types import SimpleNamespace

import torch
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ftmodel import schedule
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.positions import rope_table
from ftmodel.synthetic.registry import PROCESSES
from pipelines.artifacts.paths import checkpoint_path, corpus_folder, resume_folder
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.errors import UserError
from pipelines.common.file_listing import Folder
from pipelines.compose import compose_config, write_params
from pipelines.config.arms import group_by_seed
from pipelines.config.data import Files, ProcessData, TextData
from pipelines.config.derived import trainings
from pipelines.config.load import load_experiment, parse
from pipelines.plan import RunPlan
from pipelines.tokenize.vocabulary import train_bpe
from pipelines.train.core.segments import row_ends, segments, steps_taken

ROOT = Path(__file__).parents[2]
PARAMS = Path("params.yaml")
BEFORE = b"what was there before\n"
TRIED: set[str] = set()  # what a model is made of, where it could be made
COMPUTE = SimpleNamespace(flops=1e15, mfu=0.4, memory=80.0, price=2.5)
LONG = "a" * 300
VALUES = [
    None, True, False, 0, 1, -1, 2, 3, 7, 64, 1 << 31, 1 << 32, 1 << 53, 1 << 63, -(1 << 63),
    1 << 64, 10**30, 10**400, 0.0, -0.0, 0.5, 1.0, -1.5, 1e-300, 1e300, nan, inf, -inf, "", " ",
    "a", "null", "nan", "1", "-1", "1e6", "0x10", "yes", "on", "true", "???", "-", "~", "a.b",
    "a/b", "../a", "/", "/dev/zero", "*", "[", "a**b", "κ", "é\n\n", "\0", "\x1b[31m", "\ud800",
    LONG, "${name}", "${nothing}", "${", "${oc.env:NOTHING}", "${oc.env:HOME}", "${runs}",
    "{a: 1}", "wsd", "text", "target", "files", "hub", "baseline", "stdlib", "default", "none",
    "fsdp", "bf16", "lower", [], [1], [0, 0], ["a"], [None], [[]], [{}], {}, {"a": 1}, {"a": {}},
    {"a": None}, {1: 2},
]  # fmt: skip
NAMES = ["a", "b_1", "A", "a.b", "", " ", LONG, "κ", "a/b", "..", "_", "1", "code", "null", "${a}",
         3]  # fmt: skip
GROUPS = ("experiment", "data", "model", "suite", "text", "sweep", "nothing", "source@data.a",
          "part@data.stdlib.parts.a", "hydra/launcher", "model@x")  # fmt: skip
FILES = ("config.yaml", "experiment/smoke.yaml", "suite/mini.yaml", "data/target.yaml")
FORMS = ("{k}={v}", "+{k}={v}", "++{k}={v}", "~{k}", "~{k}={v}", "{k}", "{k}=", "={v}", "{k}:={v}",
         "{k}=={v}")  # fmt: skip


def small_experiment() -> dict:
    """Of each kind of entry one, so that a case takes little time."""
    config = OmegaConf.to_container(compose_config(["experiment=smoke", "seeds=[3]"]))
    smoke = config["runs"]
    config["runs"] = {"arm_s3": smoke["baseline"], "text_free_k1_2": smoke["text_free_k1_2"]}
    config["runs"]["text_free_k1_2"] |= {"budgets": [2600], "model": "target_small"}
    del config["models"]["text_small"]
    config["trainings"] = trainings(config["runs"], config["name"])
    config["arms"] = {"arm": {k: v for k, v in smoke["baseline"].items() if k != "seed"}}
    config["suite"]["tasks"] = {"words": config["suite"]["tasks"]["words"]}
    config["question"] = "Why?"
    return config


def places(node, path=()) -> Iterator[tuple]:
    """The path of every entry of nested mappings and lists."""
    entries = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in entries:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def near(rng: Random, value):
    """A value of the same kind that may well be right."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value + 1, max(0, value - 1), value * 2, value // 2, value * 1000, 8])
    if isinstance(value, float):
        return rng.choice([value * 2, value / 2, 0.25, 1.0])
    if isinstance(value, str):
        return rng.choice([value + "x", "target", "stdlib", "wsd", "marginal", "a b", "**/*.md"])
    return value


def mutate(rng: Random, config: dict) -> dict:
    """A copy with one to three entries changed, removed or added."""
    config = copy.deepcopy(config)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        paths = list(places(config))
        *parents, key = rng.choice(paths)
        node = config
        for parent in parents:
            node = node[parent]
        what = rng.random()
        if what < 0.5:
            node[key] = copy.deepcopy(rng.choice(VALUES))
        elif what < 0.85:
            node[key] = near(rng, node[key])
        elif what < 0.92:
            del node[key]
        elif isinstance(node, dict):
            node[rng.choice(NAMES)] = copy.deepcopy(node[key])
        else:
            node.append(copy.deepcopy(node[key]))
    return config


def broken_text(rng: Random, text: str) -> bytes:
    """YAML as editors, merges and accidents leave it."""
    content, at = text.encode(), rng.randrange(len(text))
    lines = text.splitlines(keepends=True)
    line = rng.randrange(len(lines))
    deep = rng.choice([20, 200, 3000])
    match rng.randrange(9):
        case 0:
            return content[:at]
        case 1:
            odd = rng.choice([b"\xff", b"\0", b"\t", b"\x1b", b"\xe9", b":", b"{"])
            return content[:at] + odd + content[at:]
        case 2:
            return "".join([*lines[:line], *lines[line:][:3], *lines[line:]]).encode()
        case 3:
            return "".join([*lines[:line], *lines[line + 1 :]]).encode()
        case 4:
            return content + b"\nquestion: &a [*a]\n"
        case 5:
            return content + b"\nextra: " + b"[" * deep + b"]" * deep
        case 6:
            return content + b"\nextra: " + b"{a: " * deep + b"1" + b"}" * deep
        case 7:
            tag = b"!!python/object:os.system {}\n"
            short = [b"", b"3", b"- 1\n", b"null", b"a", b"--- 1\n--- 2\n"]
            coded = [b"\xef\xbb\xbf" + content, text.encode("utf-16")]
            return rng.choice([*short, *coded, b"defaults: 3\n", tag])
    return "".join([*lines[:line], " " * rng.randrange(5), *lines[line:]]).encode()


def override(rng: Random, paths: list[tuple]) -> str:
    if rng.random() < 0.25:
        key = rng.choice(GROUPS)
    else:
        key = ".".join(map(str, rng.choice(paths)))
        if rng.random() < 0.1:
            key += rng.choice([".a", ".", "..", "@a", "[0]", ":"])
    value = rng.choice(VALUES)
    text = "null" if value is None else str(value)
    if rng.random() < 0.3:
        return f"{key}={rng.choice([1, 2, 8, 64, 0.5, 'true', 'false', 'wsd', 'target', 'x'])}"
    return rng.choice(FORMS[:4] if rng.random() < 0.8 else FORMS).format(k=key, v=text)


# What is done with a case: as `python -m pipelines.compose` and the stages do it.


def by_compose(overrides: list[str]):
    config = compose_config(overrides)
    experiment = parse(config, "conf/")
    write_params(config)
    return experiment


def by_tree(tree: dict):
    """A composed tree; one that only a file can hold is read as params.yaml."""
    try:
        config = OmegaConf.create(tree)
        OmegaConf.resolve(config)
    except OmegaConfBaseException:
        with chdir(tempfile.mkdtemp(dir=".")):
            PARAMS.write_bytes(yaml.safe_dump(tree, allow_unicode=False).encode())
            return load_experiment()
    experiment = parse(config, "conf/")
    write_params(config)
    return experiment


def by_file(content: bytes):
    Path("read").mkdir(exist_ok=True)
    with chdir("read"):
        PARAMS.write_bytes(content)
        return load_experiment()


def by_conf(file: str, content: bytes):
    """With a file of conf/ replaced."""
    path = Path("conf") / file
    before = path.read_bytes()
    try:
        path.write_bytes(content)
        return by_compose(["experiment=smoke"])
    finally:
        path.write_bytes(before)


def cases(number: int) -> Iterator[tuple[str, Callable, object]]:
    """(kind, what is done, input), the same for the same number."""
    tree = small_experiment()
    text = OmegaConf.to_yaml(OmegaConf.create(tree))
    tree["trainings"] = "${trainings_of:${runs},${name}}"  # else no other change would be accepted
    paths = list(places(tree))
    files = {name: (ROOT / "conf" / name).read_text(encoding="utf-8") for name in FILES}
    for i in range(number):
        rng = Random(i)
        match i % 30:
            case 0 | 1:
                some = [override(rng, paths) for _ in range(rng.choice([1, 1, 2]))]
                yield "override", by_compose, ["experiment=smoke", *some]
            case 2:
                file = rng.choice(list(files))
                yield "file of conf/", lambda c: by_conf(*c), (file, broken_text(rng, files[file]))
            case 3 | 4:
                yield "params.yaml", by_file, broken_text(rng, text)
            case _:
                yield "setting", by_tree, mutate(rng, tree)


@cache
def end_of_text_can_be(text: str) -> None:
    train_bpe([b"a few words, a few bytes"], 258, text)


def start_stages(experiment) -> None:
    """What every stage does first with an experiment, and what can be known before it has data."""
    json.dumps(asdict(experiment), default=str)
    group_by_seed(experiment.runs)
    for name, data in experiment.data.items():
        corpus_folder(name).exists()
        if isinstance(data, TextData):
            end_of_text_can_be(data.end_of_text)
            for part in data.parts.values():
                if isinstance(part, Files) and Path(part.root).is_dir():
                    Folder(name, part.root, part.pattern, part.exclude)
        else:
            assert isinstance(data, ProcessData) and data.source in PROCESSES
            torch.Generator().manual_seed(data.seed)
    for name, run in experiment.runs.items():
        start_training(experiment, name, run)
    for name, data in experiment.suite_runs.items():
        assert experiment.suite.tasks and experiment.runs[name].data == data
        assert isinstance(experiment.data[data], TextData)


def start_training(experiment, name, run) -> None:
    checkpoint_path(experiment.name, name).exists()  # raises if a name is too long
    resume_folder(experiment.name, f"{name}.suite").exists()
    optim, training = experiment.models[run.model].optim, segments(RunSpec(experiment, name))
    assert steps_taken(training) > 0 and row_ends(training[-1], training)
    steps = training[-1].steps
    for step in (0, steps // 2, steps - 1):
        if optim.schedule.value == "wsd":
            factor = schedule.wsd(step, optim.warmup_steps, optim.decay, steps)
        else:
            factor = schedule.cosine(step, optim.warmup_steps, steps)
        assert 0 <= factor <= 1 and 0 <= schedule.threshold(step, run.kappa_warmup_steps) <= 1
    decisive = (experiment.data[run.data], experiment.models[run.model], experiment.compute, run)
    if repr(decisive) not in TRIED:
        TRIED.add(repr(decisive))
        make_model(experiment, name, run)


def make_model(experiment, name, run) -> None:
    """Its costs, its table of positions and, if it is small, the model itself without memory."""
    data, config = experiment.data[run.data], experiment.model_config(run)
    optim = experiment.models[run.model].optim
    if config.n_layers <= 8 and (not isinstance(data, TextData) or data.tokenizer is None):
        assert isfinite(RunPlan(RunSpec(experiment, name), COMPUTE).flops)
    one_head = replace(config, head_width=min(config.head_channels, 64))
    table = rope_table(one_head, 0, min(config.context, 64), torch.device("cpu"))
    assert torch.view_as_real(table).isfinite().all()
    if config.n_layers <= 8:
        with torch.device("meta"):
            model = FreeTransformer(config, 300)
        betas = (optim.beta1, optim.beta2)
        torch.optim.AdamW(model.parameters(), optim.lr, betas, weight_decay=optim.weight_decay)


def outcome(do: Callable, given: object, reread: bool = True) -> str:
    """ "refused", "accepted", or what is wrong."""
    PARAMS.write_bytes(BEFORE)
    try:
        with redirect_stdout(None):
            experiment = do(given)
    except UserError as error:
        if "\n" in str(error) or len(str(error)) > 2000:
            return f"many lines: {str(error)[:300]}"
        if PARAMS.read_bytes() != BEFORE:
            return f"params.yaml written: {error}"
        return "refused"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {str(error)[:300]}"
    try:
        if PARAMS.read_bytes() != BEFORE and reread:
            assert load_experiment() == experiment, "params.yaml says something else"
        start_stages(experiment)
    except Exception as error:
        return f"refused later: {type(error).__name__}: {str(error)[:300]}"
    return "accepted"


def outcomes(number: int, folder: Path) -> Iterator[tuple[str, object, str]]:
    """(kind, input, outcome) of each case, in a folder of its own."""
    shutil.copytree(ROOT / "conf", folder / "conf")
    gc.freeze()  # else half of the time goes into looking through all that was imported
    with chdir(folder):
        for i, (kind, do, given) in enumerate(cases(number)):
            yield kind, given, outcome(do, given, reread=i % 3 == 0)  # the file takes a while
