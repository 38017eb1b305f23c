"""The planner: figures that belong together. What it prints: tests/docs/test_cluster_page.py."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ftmodel.config import ModelConfig
from ftmodel.costs.scaling import Interconnect, step, traffic
from ftmodel.costs.training import flops_per_token, memory
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.schema import Optim
from pipelines.evaluate.work import expected_passes
from pipelines.host.errors import UserError
from pipelines.parallel import plan, spreads, trial
from pipelines.parallel.plan import Assumptions, RunPlan, format_days, gib, short_number
from pipelines.parallel.screen import duration
from tests import ROOT
from tests.parallel.test_spreads import BASELINE, FREE
from tests.support.arrivals import arrives
from tests.support.commands import call
from tests.support.mutants import rejects
from tests.support.pages import numbers
from tests.support.settings import composed_by_hydra as composed

H100 = Assumptions(flops=989e12, mfu=0.4, memory=80.0, price=None)
GIB = 2**30


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(spreads, "read_record", list)  # not the working tree's


@pytest.fixture
def printed(capsys):
    """What `ftlab plan` prints for the given arguments."""

    def run(*arguments):
        call("plan", *arguments)
        return capsys.readouterr().out

    return run


def planned(name, *overrides, **options):
    return RunPlan(RunSpec(composed(*overrides), name), replace(H100, **options))


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "conf/experiment").glob("*.yaml")))
def test_every_shipped_experiment_can_be_planned_and_fits(name):
    if name == "retrofit" and not Path("models/smollm2_135m").exists():
        pytest.skip("the size of its vocabulary is that of a tokenizer that is not fetched here")
    overrides = f"experiment={name}"
    runs = composed(overrides).runs.items()
    for run in {(run.model, run.kappa_bits is None): name for name, run in runs}.values():
        row = planned(run, overrides)
        assert row.fits and row.days > 0


@pytest.mark.parametrize("name", ["kappa_text", "kappa_124m"])
def test_the_shipped_controls_are_a_block_more_and_a_threshold_of_zero(name):
    experiment = composed(f"experiment={name}")
    for seed in experiment.seeds:
        plus1, k0, plain = (
            vars(experiment.runs[f"{arm}_s{seed}"])
            for arm in ("baseline_plus1", "free_k0", "baseline")
        )
        assert plus1 == {**plain, "extra_blocks": 1}
        assert k0 == {**plain, "kappa_bits": 0.0}


def test_speed_days_and_cost_follow_from_flops_utilisation_and_price():
    for name, ratio in (("baseline", 1), ("free_k1", 1.0537)):
        run = planned(name, "experiment=paper_1_5b", flops=5e14, mfu=0.5, price=2)
        assert run.flops_per_token == flops_per_token(run.spec.config, 1 << 17).total
        assert run.tokens == 44_822 * 256 * 4096
        assert run.flops == run.flops_per_token * run.tokens
        assert run.tokens_per_second == pytest.approx(2.5e14 / run.flops_per_token)
        seconds = run.flops / (32 * 2.5e14)
        assert run.days == pytest.approx(seconds / 86_400)
        assert run.cost == pytest.approx(2 * 32 * seconds / 3600)
        assert run.times_baseline == pytest.approx(ratio, abs=5e-5)


@rejects("RunPlan.__init__: «steps_taken(segments(spec))→spec.steps»", "decays that no plan has")
def test_the_decays_of_smaller_budgets_are_trained_on_top_of_the_trunk():
    """Each decays over its last fifth: 16 steps of a trunk, and 2, 3 and 4 of decays."""
    budgets = f"runs.free_k1_8.budgets=[{10 * 520},{15 * 520}]"
    schedule = "models.target_small.optim.schedule"
    planned_tokens = [
        planned("free_k1_8", "experiment=smoke", budgets, f"{schedule}={name}").tokens
        for name in ("wsd", "cosine")
    ]
    assert planned_tokens == [(16 + 2 + 3 + 4) * 520, 20 * 520]


PAPER_8B = {"half": True, "workers": 256, "sharded": True}


@arrives("compute", "accumulate strategy activation_checkpointing precision workers")
@pytest.mark.parametrize(
    ("name", "setting", "micro_batch", "worker"),
    [
        ("paper_8b", "accumulate=4", 1, PAPER_8B),  # 1024 / (256 × 4)
        ("paper_8b", "strategy=ddp", 1, PAPER_8B | {"sharded": False}),
        ("paper_8b", "activation_checkpointing=true", 1,
         PAPER_8B | {"activation_checkpointing": True}),
        ("smoke", "precision=auto", 8, {"half": True}),
        ("smoke", "precision=float32", 8, {"half": False}),
        ("smoke", "workers=2", 4, {"half": True, "workers": 2}),
    ],
)  # fmt: skip
def test_memory_is_that_of_one_worker_with_its_micro_batch(name, setting, micro_batch, worker):
    run = planned("free_k1", f"experiment={name}", f"compute.{setting}")
    assert run.micro_batch == micro_batch
    assert run.memory == memory(run.spec.config, run.vocabulary, micro_batch, **worker)
    assert run.flops_per_token == flops_per_token(run.spec.config, run.vocabulary).total


def test_a_number_has_the_digits_that_matter():
    sizes = {3 * 2**29: "1.5", 2**40: "1024.0", 0.05 * GIB: "0.1"}
    sizes |= {GIB / 64: "0.016", 1: "9.3e-10", 0: "0.0"}
    assert [*map(gib, sizes)] == [*sizes.values()]
    numbers = {999: "999", 1000: "1 k", 1e6: "1 M", 1_234_567: "1.235 M", 1e9: "1 B"}
    numbers |= {999_999: "1000 k", 999_999_999: "1000 M"}
    assert [*map(short_number, numbers)] == [*numbers.values()]
    assert [*map(format_days, (12.34, 0.1, 0.0996))] == ["12.34", "0.10", "0.1"]


def test_a_run_fits_whose_memory_is_below_that_of_the_gpu():
    total = planned("free_k1", "experiment=paper_8b").memory.total / GIB
    for limit, fits in ((total, True), (total * 0.999, False)):
        assert planned("free_k1", "experiment=paper_8b", memory=limit).fits is fits


@arrives("compute", "gpus_per_worker")
def test_a_worker_with_a_share_of_a_gpu_has_that_share_of_its_speed_and_memory():
    one = ("experiment=paper_1_5b", "compute.workers=1", "compute.strategy=ddp")
    limit = 1.5 * planned("baseline", *one).memory.total / GIB
    alone, shared = (
        planned("baseline", *one, f"compute.gpus_per_worker={g}", memory=limit) for g in (1, 0.5)
    )
    assert (alone.gpus, shared.gpus, planned("baseline", *one).gpus) == (1, 0.5, 1)
    assert shared.days == pytest.approx(2 * alone.days)
    assert (alone.fits, shared.fits) == (True, False)


def test_seeds_of_an_arm_share_a_line_and_all_runs_are_summed_up(printed):
    overrides = ("experiment=kappa_text", "seeds=[0,3]")
    runs = [planned(run, *overrides, price=2e6) for run in composed(*overrides).runs]
    text = printed(*overrides, "--price", "2e6").splitlines()
    rows = [line.split() for line in text if line.startswith(("baseline", "free"))]
    arms = list(composed(*overrides).arms)
    assert [row[0] for row in rows] == 2 * arms
    assert {row[1] for row in rows[: len(arms)]} == {"2"}
    assert text[0].endswith("  cost") and float(rows[0][-1].replace(",", "")) == pytest.approx(
        runs[0].cost, abs=1
    )
    (line,) = (line for line in text if line.startswith(f"{len(runs)} runs: "))
    found = re.findall(r"\d[\d.e+-]*(?= |$)", line.replace(",", ""))[1:]
    flops, days, evaluation, cost = map(float, found)
    expected = sum(expected_passes(run.spec) * run.flops_per_token / 3 for run in runs)
    assert evaluation == pytest.approx(expected / (989e12 * 0.4) / 86_400, rel=0.1)
    assert flops == pytest.approx(sum(run.flops for run in runs), rel=1e-3)
    assert days == pytest.approx(sum(run.days for run in runs), rel=0.05)
    assert cost == pytest.approx(sum(run.cost for run in runs), abs=1)


def test_what_seeds_can_show_is_printed_where_spreads_are_on_record(printed, monkeypatch):
    overrides = ("experiment=ten_seeds_text", "seeds=[0,1]", "--mfu", "0.4")
    assert printed(*overrides).splitlines()[-1] == (
        "what seeds can show: conf/spreads.csv has no spread of these arms yet (`ftlab spreads`)"
    )
    monkeypatch.setattr(spreads, "read_record", lambda: [BASELINE, FREE])
    *_, heads, first, second = printed(*overrides).splitlines()
    assert heads.startswith("arm, compared with") and heads.endswith("seeds to rule it out")
    assert first.startswith("free_k1_2, baseline") and second.startswith("free_k1, baseline")
    assert "old/free_k1_2, old/baseline" in second  # the only Free Transformer on record


def test_the_time_of_the_data_follows_from_the_largest_run(printed):
    """1 T tokens are 4 TB, 28 hours at 40 MB/s."""
    text = printed("experiment=paper_8b", "runs.free_k1.tokens=1_000_000_000_000")
    (line,) = [line for line in text.splitlines() if "stage data" in line]
    assert numbers(line) == ["1000", "4,000.0", "28"]
    assert "stage data" not in printed("experiment=figure4", "--mfu", "0.4")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mfu", "2"], "--mfu': 2.0 is not in the range 0<x<=1"),
        (["--overlap", "2"], "--overlap': 2.0 is not in the range 0<=x<=1"),
        (["experiment=smoke", "compute.workers=0"], "compute.workers"),
        (["experiment=smoke", "--weak-scaling", "k1"], "--weak-scaling: 'k1' is not one of "),
    ],
)
def test_a_mistake_is_one_line(printed, arguments, words):
    with pytest.raises(UserError, match=words):
        printed(*arguments)


@pytest.fixture
def this_cpu(monkeypatch):
    """Two cores without a GPU on which a stage takes 6 s to start, and a trial that measures 2,080
    tokens a second of each shape; returns what it was asked.
    """
    asked = []

    def speeds(shapes, processes, threads):
        asked.append((shapes, processes, threads))
        return 6.0, [2080.0] * len(shapes)

    monkeypatch.setattr(plan, "speeds", speeds)
    monkeypatch.setattr(plan.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("pipelines.parallel.slots.whole_cores", lambda: 2)
    monkeypatch.setattr("pipelines.parallel.slots.gpu_ids", list)
    return asked


@rejects("plan.show_minutes: training[name] = «p.tokens→1»", "a training that takes no time")
def test_without_a_gpu_it_says_minutes(printed, this_cpu):
    """By a trial of each shape once: the runs of κ = 1/8 and 1 have the same."""
    text = printed("experiment=smoke", "runs.free_k1.tokens=624_000", "evaluation.particles=4")
    ((shapes, *how),) = this_cpu
    assert len(shapes) == 3 and how == [2, 1]
    heads, *rows = (re.split(r"  +", line.strip()) for line in text.splitlines()[:5])
    table = [dict(zip(heads, row, strict=True)) for row in rows if len(row) == len(heads)]
    free = next(row for row in table if row["arm"] == "free_k1")
    passes = expected_passes(planned("free_k1", "experiment=smoke", "evaluation.particles=4").spec)
    assert (free["training"], free["evaluation"]) == ("5:00", duration(passes / 3 / 2080))
    # starts: sources, data and tokens, training and evaluation, suite, report
    starts = 2 + 2 * (0.6 + 0.6) + 4 * (1.6 + 1.3) + 2 + 4
    assert f"all else {duration(6 * starts)}" in text
    longest = 6 * (2 + 0.6 + 0.6 + 1.6 + 1.3 + 4) + 300 + passes / 3 / 2080
    assert f"2 stages side by side: about {duration(longest)} if nothing else" in text


@arrives("compute", "threads precision")
def test_a_trial_is_made_as_the_stages_will_run(printed, this_cpu):
    printed("experiment=smoke", "compute.threads=2", "compute.precision=bf16")
    printed("experiment=smoke", "~runs.free_k1", "~runs.free_k1_8", "~runs.text_free_k1_2")
    (shapes, *how), (_, *alone) = this_cpu
    assert how == [1, 2] and alone == [1, 2] and {shape.bf16 for shape in shapes} == {True}


@pytest.mark.parametrize(
    "arguments",
    [["experiment=smoke", "--mfu", "0.4"], ["experiment=smoke", "--flops", "989e12"],
     ["experiment=kappa_124m"]],
    ids=["mfu", "flops", "too large for a CPU"],
)  # fmt: skip
def test_days_of_gpus_where_these_are_asked_for_or_needed(printed, this_cpu, arguments):
    assert "days one by one" in printed(*arguments) and not this_cpu


def test_days_of_gpus_where_there_is_one(printed, this_cpu, monkeypatch):
    monkeypatch.setattr(plan.torch.cuda, "is_available", lambda: True)
    assert "days one by one" in printed("experiment=smoke") and not this_cpu


class Inline:
    """A pool that does its work in this process, with a trial that measures what it is told."""

    def __init__(self, processes, mp_context):
        self.calls = iter(range(processes))

    __enter__ = lambda self: self  # noqa: E731
    __exit__ = lambda *_: None  # noqa: E731

    def submit(self, trial, shapes, threads):
        scale = 1 + next(self.calls)
        found = [5.0 * scale, *(100.0 * scale * shape.vocabulary for shape in shapes)]
        return SimpleNamespace(result=lambda: found)


@rejects("trial.speeds: if «key not in notes→True»", "a trial each time")
def test_what_a_trial_found_is_noted_by_machine_and_shape(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trial, "ProcessPoolExecutor", Inline)
    small, large = (
        trial.Shape(ModelConfig(2, 16, 2, 1, 32, 8), vocabulary, Optim(batch_size=2, lr=0.1), False)
        for vocabulary in (2, 3)
    )

    def measured(*shapes, processes=2):
        found = trial.speeds(shapes, processes, 1)
        return found, "measuring" in capsys.readouterr().err

    assert measured(small) == ((7.5, [300.0]), True)  # means over both processes
    assert measured(small) == ((7.5, [300.0]), False)
    assert measured(large, small) == ((7.5, [450.0, 300.0]), True)
    assert measured(small, processes=1) == ((5.0, [200.0]), True)
    trial.NOTES.write_text("{damaged")
    assert measured(small)[1]
    monkeypatch.setattr(trial, "process_time", iter(range(99)).__next__)
    assert trial.speed(small, 1, seconds=2.0) == 8  # a row of 8 tokens, in steps of a second


def scaled(printed, *arguments):
    """The rows of a table of weak scaling, by number of GPUs."""
    lines = printed(*arguments, "--weak-scaling", "free_k1").splitlines()
    heads, *rows = (re.split(r"  +", line.strip()) for line in lines)
    return {int(row[0]): dict(zip(heads, row, strict=True)) for row in rows if row[0].isdigit()}


@arrives("compute", "accumulate strategy")
def test_weak_scaling_grows_the_batch_and_each_assumption_counts(printed):
    asked = ("experiment=paper_1_5b", "compute.accumulate=2")
    rows = scaled(printed, *asked)
    assert list(rows) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    plan = planned("free_k1", *asked)
    sent = traffic(plan.spec.config, plan.vocabulary, 256, True, 2)
    joined = Interconnect(360e9, 40e9, 8, 2e-6, 0.8)  # bytes a second, seconds
    duration = step(8 * 4096 / plan.tokens_per_second, sent, 256, joined, True, 2)
    assert float(rows[256]["GB sent"]) == pytest.approx(sent.bytes / 1e9, abs=0.05)
    assert float(rows[256]["waiting, s"]) == pytest.approx(duration.exposed, abs=5e-4)
    for assumption in (
        *(("--mfu", "0.2"), ("--nvlink", "100"), ("--network", "10"), ("--per-node", "2")),
        *(("--latency", "20"), ("--overlap", "0"), ("compute.strategy=ddp",)),
    ):
        assert scaled(printed, *asked, *assumption)[256] != rows[256], assumption


def test_memory_of_weak_scaling_is_the_plans_own(printed):
    rows, plan = scaled(printed, "experiment=paper_8b"), planned("free_k1", "experiment=paper_8b")
    for n in (1, 2, 256):
        total = memory(plan.spec.config, 1 << 17, 1, True, n, sharded=n > 1).total
        assert float(rows[n]["GiB each"]) == pytest.approx(total / GIB, abs=0.05)
        assert rows[n]["fits 80"] == ("yes" if n == 256 else "NO")
    assert total == plan.memory.total
    rows = scaled(printed, "experiment=paper_8b", "--memory", repr(total / GIB))
    assert rows[256][f"fits {total / GIB:g}"] == "yes"
