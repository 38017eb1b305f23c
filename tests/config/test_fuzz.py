"""Odd and broken configurations: never a traceback, never one that is refused and yet writes
params.yaml, never one that is accepted and then refused by a stage for a reason known before.
"""

import gc
import json
import shutil
from collections import Counter
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import asdict, replace
from functools import cache, reduce
from math import inf, isfinite, nan
from operator import getitem
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ftmodel import schedule
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.positions import rope_table
from ftmodel.synthetic import PROCESSES
from pipelines.artifacts.run_spec import RunSpec
from pipelines.common.file_listing import Folder
from pipelines.config import derived
from pipelines.config.arms import group_by_seed
from pipelines.config.compose import compose_config, write_params
from pipelines.config.data import Files, ProcessData, TextData
from pipelines.config.derived import trainings
from pipelines.config.load import load_experiment, parse
from pipelines.host.errors import UserError
from pipelines.host.files import checkpoint_path, corpus_folder, resume_folder
from pipelines.parallel.plan import RunPlan
from pipelines.tokenize.vocabulary import train_bpe
from pipelines.train.core.module import learning_rate_factor
from pipelines.train.core.segments import row_ends, segments, steps_taken
from tests import ROOT

PARAMS = Path("params.yaml")
BEFORE = b"what was there before\n"
COMPUTE = SimpleNamespace(flops=1e15, mfu=0.4, memory=80.0, price=2.5)
LONG = "a" * 300
VALUES = [
    None, True, False, 0, 1, -1, 2, 3, 7, 64, 1 << 31, 1 << 53, 1 << 63, -(1 << 63), 1 << 64,
    10**400, 0.0, -0.0, 0.5, 1.0, -1.5, 1e-300, 1e300, nan, inf, -inf, "", " ", "a", "null", "nan",
    "1", "1e6", "0x10", "yes", "true", "???", "-", "~", "a.b", "a/b", "../a", "/dev/zero", "*", "[",
    "a**b", "κ", "é\n\n", "\0", "\x1b[31m", "\ud800", LONG, "${name}", "${nothing}", "${",
    "${oc.env:NOTHING}", "${oc.env:HOME}", "${runs}", "{a: 1}", "wsd", "target", "files", "hub",
    "baseline", "stdlib", "none", "fsdp", "bf16", [], [1], [0, 0], ["a"], [None], [[]], [{}], {},
    {"a": 1}, {"a": {}}, {"a": None}, {1: 2},
]  # fmt: skip
NAMES = ["a", "b_1", "A", "a.b", "", " ", LONG, "κ", "a/b", "..", "_", "1", "null", "${a}", 3]
GROUPS = ("experiment", "data", "model", "suite", "text", "sweep", "nothing", "source@data.a",
          "part@data.stdlib.parts.a", "hydra/launcher", "model@x")  # fmt: skip
FILES = ("config.yaml", "experiment/smoke.yaml", "suite/mini.yaml", "data/target.yaml")
FORMS = [*4 * ["{k}={v}", "+{k}={v}", "++{k}={v}", "~{k}"], "~{k}={v}", "{k}", "{k}=", "={v}",
         "{k}:={v}", "{k}=={v}"]  # fmt: skip
NESTED = [
    b"\nextra: " + b * n + c * n for n in (20, 3000) for b, c in ((b"[", b"]"), (b"{a: ", b"}"))
]
NESTED += [b"\nquestion: &a [*a]\n"]
PIECES = [b"", b"\xff", b"\0", b"\t", b"\x1b", b"\xe9", b":", b"{", b"   "]
WHOLE = [b"", b"3", b"- 1\n", b"null", b"a", b"--- 1\n--- 2\n", b"defaults: 3\n"]
WHOLE += [b"!!python/object:os.system {}\n"]


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


def places(node, path=()):
    """The path of every entry of nested mappings and lists."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def near(value):
    """Values of the same kind that may well be right."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, max(0, value - 1), value * 2, value // 2, value * 1000, 8]
        case float():
            return [value * 2, value / 2, 0.25, 1.0]
        case str():
            return [value + "x", "target", "stdlib", "wsd", "marginal", "a b", "**/*.md"]
    return [value]


def edited(one_of, config):
    """A copy with one to three entries changed, removed or added."""
    config = deepcopy(config)
    for _ in range(one_of([1, 1, 1, 2, 3])):
        *parents, key = one_of([*places(config)])
        node = reduce(getitem, parents, config)
        match one_of([*4 * ["other"], *4 * ["near"], "none", "more"]):
            case "other":
                node[key] = deepcopy(one_of(VALUES))
            case "near":
                node[key] = one_of(near(node[key]))
            case "none":
                del node[key]
            case "more" if isinstance(node, dict):
                node[one_of(NAMES)] = deepcopy(node[key])
            case "more":
                node.append(deepcopy(node[key]))
    return config


def broken(one_of, text):
    """YAML as editors, merges and accidents leave it."""
    content, lines = text.encode(), text.encode().splitlines(keepends=True)
    place = one_of(range(len(lines)))
    line = lines[place]
    lines[place] = one_of([b"", line + line, b"  " + line, b"\n" + line])
    kept = one_of(range(len(content) + 1))
    spliced = content[:kept] + one_of(PIECES) + content[kept:]
    coded = [b"\xef\xbb\xbf" + content, text.encode("utf-16"), content[:kept]]
    edited = [*3 * [b"".join(lines)], *3 * [spliced]]
    return one_of([*edited, one_of(coded), content + one_of(NESTED), one_of(WHOLE)])


def override(one_of, paths):
    key = ".".join(map(str, one_of(paths)))
    if one_of([True, False]):  # it may well be right
        return f"{key}={one_of([1, 2, 8, 64, 0.5, 'true', 'false', 'wsd', 'target', 'x'])}"
    key = one_of([key, one_of(GROUPS)]) + one_of([*9 * [""], ".a", "..", "@a", "[0]"])
    value = one_of(VALUES)
    return one_of(FORMS).format(k=key, v="null" if value is None else value)


# What is done with a case: as `ftlab compose` and the stages do it.


def checked(config):
    experiment = parse(config, "conf/")
    write_params(config)
    return experiment


def by_compose(overrides):
    return checked(compose_config(overrides))


def by_tree(tree):
    """A composed tree; one that only a file can hold is read as params.yaml."""
    try:
        config = OmegaConf.create(tree)
        OmegaConf.resolve(config)
    except OmegaConfBaseException:
        return by_file(yaml.safe_dump(tree, allow_unicode=False).encode())
    return checked(config)


def by_file(content):
    PARAMS.write_bytes(content)
    try:
        return load_experiment()
    finally:
        PARAMS.write_bytes(BEFORE)


def by_conf(name, content):
    """With a file of conf/ replaced."""
    Path("conf", name).write_bytes(content)
    try:
        return by_compose(["experiment=smoke"])
    finally:
        shutil.copy(ROOT / "conf" / name, Path("conf", name))


@cache
def end_of_text_can_be(text):
    train_bpe([b"a few words, a few bytes"], 258, text)


def start_stages(experiment):
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


TRIED: set[str] = set()  # what a model is made of, where it could be made


def start_training(experiment, name, run):
    checkpoint_path(experiment.name, name).exists()  # raises if a name is too long
    resume_folder(experiment.name, f"{name}.suite").exists()
    optim, training = experiment.models[run.model].optim, segments(RunSpec(experiment, name))
    assert steps_taken(training) > 0 and row_ends(training[-1], training)
    steps = training[-1].steps
    for step in (0, steps // 2, steps - 1):
        factor = learning_rate_factor(optim, step, steps)
        assert 0 <= factor <= 1 and 0 <= schedule.threshold(step, run.kappa_warmup_steps) <= 1
    decisive = (experiment.data[run.data], experiment.models[run.model], experiment.compute, run)
    if repr(decisive) not in TRIED:
        TRIED.add(repr(decisive))
        make_model(experiment, name, run)


def make_model(experiment, name, run):
    """Its costs, its table of positions and, if it is small, the model itself without memory."""
    data, config = experiment.data[run.data], derived.model_config(experiment, run)
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


def accepted(do, *given):
    """Whether a configuration is; fails if it is neither well refused nor fit for the stages."""
    PARAMS.write_bytes(BEFORE)
    try:
        with redirect_stdout(None):
            experiment = do(*given)
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) <= 2000
        assert PARAMS.read_bytes() == BEFORE, f"params.yaml is written, and then: {error}"
        return False
    if PARAMS.read_bytes() != BEFORE:
        assert load_experiment() == experiment, "params.yaml says something else"
    start_stages(experiment)
    return True


@pytest.mark.parametrize("cases", [150, pytest.param(1500, marks=pytest.mark.slow)])
def test_every_configuration_is_refused_in_one_line_or_can_be_run(tmp_path, monkeypatch, cases):
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    gc.freeze()  # else half of the time goes into looking through all that was imported
    tree = small_experiment()
    text = OmegaConf.to_yaml(OmegaConf.create(tree))
    tree["trainings"] = "${trainings_of:${runs},${name}}"  # else no other change would be accepted
    paths, seen = [*places(tree)], Counter()

    @settings(max_examples=cases, derandomize=True, suppress_health_check=HealthCheck)
    @given(st.data())
    def every(data):
        def one_of(choices):
            return data.draw(st.sampled_from(choices))

        match kind := one_of([*12 * ["setting"], "override", "file of conf/", "params.yaml"]):
            case "setting":
                case = by_tree, edited(one_of, tree)
            case "override":
                some = [override(one_of, paths) for _ in range(one_of([1, 1, 2]))]
                case = by_compose, ["experiment=smoke", *some]
            case "file of conf/":
                name = one_of(FILES)
                case = by_conf, name, broken(one_of, (ROOT / "conf" / name).read_text())
            case "params.yaml":
                case = by_file, broken(one_of, text)
        seen[kind, accepted(*case)] += 1

    every()
    assert seen["setting", False] > cases / 37.5 and seen["setting", True] > cases / 7.5
    if cases == 1500:  # it looks on both sides
        for kind in ("override", "file of conf/", "params.yaml"):
            assert seen[kind, False] > 20 and seen[kind, True] > 1, (kind, seen)
