"""The planner: figures that belong together, a table of every run, mistakes in one line."""

import json
import re
from pathlib import Path

import pytest

from ftmodel.costs import flops_per_token, memory
from pipelines.common.errors import UserError
from pipelines.compose import compose_config
from pipelines.config.load import parse
from tests.support.commands import call

ROOT = Path(__file__).parents[2]


@pytest.fixture
def planned(monkeypatch, capsys):
    """What `python -m pipelines.plan` prints for the given arguments."""
    monkeypatch.chdir(ROOT)

    def run(*arguments):
        call("plan", *arguments)
        return capsys.readouterr().out

    return run


def figures(planned, *arguments):
    return {row["run"]: row for row in json.loads(planned(*arguments, "--json"))}


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "conf/experiment").glob("*.yaml")))
def test_every_shipped_experiment_can_be_planned_and_fits(planned, name):
    if name == "retrofit" and not Path("models/smollm2_135m").exists():
        pytest.skip("the size of its vocabulary is that of a tokenizer that is not fetched here")
    rows = figures(planned, f"experiment={name}")
    assert list(rows) == list(parse(compose_config([f"experiment={name}"]), "conf").runs)
    assert all(row["fits"] and row["days"] > 0 for row in rows.values())


def test_activation_checkpointing_is_planned_with(planned):
    plain, again = (
        figures(planned, "experiment=paper_8b", f"compute.activation_checkpointing={on}")["free_k1"]
        for on in ("false", "true")
    )
    assert again["memory"]["activations"] < 0.2 * plain["memory"]["activations"]
    assert again["flops"] == plain["flops"]  # what is computed twice is not useful twice


def test_the_shipped_controls_are_a_block_more_and_a_threshold_of_zero():
    for name in ("kappa_text", "kappa_124m"):
        experiment = parse(compose_config([f"experiment={name}"]), "conf")
        for seed in experiment.seeds:
            plus1, k0, plain = (
                experiment.runs[f"{arm}_s{seed}"]
                for arm in ("baseline_plus1", "free_k0", "baseline")
            )
            assert vars(plus1) == {**vars(plain), "extra_blocks": 1}
            assert vars(k0) == {**vars(plain), "kappa_bits": 0.0}


def test_speed_days_and_cost_follow_from_flops_utilisation_and_price(planned):
    experiment = parse(compose_config(["experiment=paper_1_5b"]), "conf")
    rows = figures(
        planned, "experiment=paper_1_5b", "--flops", "5e14", "--mfu", "0.5", "--price", "2"
    )
    assert list(rows) == list(experiment.runs)
    for name, row in rows.items():
        config = experiment.model_config(experiment.runs[name])
        flops = flops_per_token(config, 1 << 17).total
        assert row["flops_per_token"] == flops
        assert row["tokens"] == 44_822 * 256 * 4096
        assert row["flops"] == flops * row["tokens"]
        assert row["tokens_per_second"] == pytest.approx(2.5e14 / flops)
        seconds = row["flops"] / (32 * 2.5e14)
        assert row["days"] == pytest.approx(seconds / 86_400)
        assert row["cost"] == pytest.approx(2 * 32 * seconds / 3600)
    assert rows["baseline"]["times_baseline"] == 1
    assert rows["free_k1"]["times_baseline"] == pytest.approx(1.0537, abs=5e-5)


def test_memory_is_that_of_one_worker_with_its_micro_batch(planned):
    experiment = parse(compose_config(["experiment=paper_8b"]), "conf")
    config = experiment.model_config(experiment.runs["free_k1"])
    sharded = figures(planned, "experiment=paper_8b")["free_k1"]
    assert sharded["micro_batch"] == 1  # 1024 / (256 × 4)
    assert sharded["memory"] == vars(memory(config, 1 << 17, 1, True, 256, sharded=True))
    whole = figures(planned, "experiment=paper_8b", "compute.strategy=ddp")["free_k1"]
    assert whole["memory"] == vars(memory(config, 1 << 17, 1, True, 256))
    assert (sharded["fits"], whole["fits"]) == (True, False)


def test_a_run_fits_where_the_sum_does(planned):
    total = figures(planned, "experiment=paper_8b")["free_k1"]["memory_total"] / 2**30
    for gib, fits in ((total * 1.001, True), (total * 0.999, False)):
        row = figures(planned, "experiment=paper_8b", "--memory", str(gib))["free_k1"]
        assert row["fits"] is fits


def test_a_worker_with_a_share_of_a_gpu_has_that_share_of_its_speed_and_memory(planned):
    one = ("experiment=paper_1_5b", "compute.workers=1", "compute.strategy=ddp")
    total = figures(planned, *one)["baseline"]["memory_total"] / 2**30
    limit = ("--memory", str(1.5 * total))
    alone, shared = (
        figures(planned, *one, f"compute.gpus_per_worker={g}", *limit)["baseline"] for g in (1, 0.5)
    )
    assert (alone["gpus"], shared["gpus"]) == (1, 0.5)
    assert shared["days"] == pytest.approx(2 * alone["days"])
    assert (alone["fits"], shared["fits"]) == (True, False)


def test_precision_and_workers_are_those_of_the_configuration(planned):
    bf16, full = (
        figures(planned, "experiment=smoke", f"compute.precision={p}")["free_k1"]["memory"]
        for p in ("auto", "float32")
    )
    assert bf16["weight_copies"] > 0 == full["weight_copies"]
    assert bf16["activations"] < full["activations"]
    one, two = (
        figures(planned, "experiment=smoke", f"compute.workers={n}")["free_k1"] for n in (1, 2)
    )
    assert one["days"] == 2 * two["days"]
    assert one["micro_batch"] == 2 * two["micro_batch"]


def test_the_tables_have_a_line_for_every_arm_and_a_cost_only_for_a_price(planned):
    text = planned("experiment=smoke")
    for name in ("baseline", "free_k1_8", "free_k1", "text_free_k1_2"):
        assert sum(line.split()[:1] == [name] for line in text.splitlines()) == 2
    assert "cost" not in text
    assert "cost" in planned("experiment=smoke", "--price", "2")


def test_seeds_of_an_arm_share_a_line_and_all_runs_are_summed_up(planned):
    arguments = ("experiment=kappa_text", "seeds=[0,3]", "--price", "2e6")
    runs = figures(planned, *arguments).values()
    text = planned(*arguments).splitlines()
    rows = [line.split() for line in text if line.startswith(("baseline", "free"))]
    arms = list(parse(compose_config(["experiment=kappa_text"]), "conf").arms)
    assert [row[0] for row in rows] == 2 * arms
    assert {row[1] for row in rows[: len(arms)]} == {"2"}
    (line,) = (line for line in text if line.startswith(f"{len(runs)} runs: "))
    flops, days, cost = map(float, re.findall(r"\d[\d.e+-]*(?= |$)", line.replace(",", ""))[1:])
    assert flops == pytest.approx(sum(run["flops"] for run in runs), rel=1e-3)
    assert days == pytest.approx(sum(run["days"] for run in runs), rel=0.05)
    assert cost == pytest.approx(sum(run["cost"] for run in runs), abs=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mfu", "2"], "--mfu': 2 is more than 1"),
        (["--overlap", "1.5"], "--overlap': 1.5 is more than 1"),
        (["--mfu", "0"], "--mfu': 0 is not a positive number"),
        (["--flops", "many"], "--flops': many is not a positive number"),
        (["--price", "nan"], "--price': nan is not a positive number"),
        (["--flop", "1"], "No such option '--flop'"),
        (["experiment=nothing"], "experiment/nothing"),
        (["experiment=smoke", "compute.workers=0"], "compute.workers"),
        (["smoke"], "smoke"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line(planned, arguments, words):
    with pytest.raises(UserError, match=words) as caught:
        planned(*arguments)
    assert "\n" not in str(caught.value)


def scaled(planned, *arguments):
    """The rows of a table of weak scaling, by number of GPUs."""
    lines = planned(*arguments, "--weak-scaling", "free_k1").splitlines()
    heads, *rows = (re.split(r"  +", line.strip()) for line in lines)
    return {int(row[0]): dict(zip(heads, row, strict=True)) for row in rows if row[0].isdigit()}


def test_weak_scaling_grows_the_batch_and_each_assumption_counts(planned):
    rows = scaled(planned, "experiment=paper_1_5b")
    assert list(rows) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert [int(row["sequences"]) for row in rows.values()] == [8 * n for n in rows]
    assert rows[1]["efficiency"] == "100.0%" and rows[1]["tokens/s"] == "37,075"
    for assumption in (
        ("--mfu", "0.2"),
        ("--nvlink", "100"),
        ("--network", "10"),
        ("--per-node", "2"),
        ("--latency", "20"),
        ("--overlap", "0"),
        ("compute.strategy=ddp",),
    ):
        assert scaled(planned, "experiment=paper_1_5b", *assumption)[256] != rows[256], assumption


def test_memory_of_weak_scaling_is_the_plans_own(planned):
    row = scaled(planned, "experiment=paper_8b")[256]
    total = figures(planned, "experiment=paper_8b")["free_k1"]["memory_total"]
    assert float(row["GiB each"]) == pytest.approx(total / 2**30, abs=0.05)


def test_weak_scaling_of_an_unknown_run_is_one_line(planned):
    with pytest.raises(UserError, match="--weak-scaling: no run 'k1'; there are baseline, "):
        planned("experiment=paper_8b", "--weak-scaling", "k1")
