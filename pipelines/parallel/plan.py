"""Estimates what an experiment costs without running it: on GPUs by counting (ftmodel/costs/), on
this machine's CPU by a trial of its speed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from tokenizers import Tokenizer

from ftmodel.analysis.power import POWER
from ftmodel.analysis.work import TRAINING
from ftmodel.config import ModelConfig
from ftmodel.costs.scaling import Interconnect, step, traffic
from ftmodel.costs.training import Memory, flops_per_token, memory, parameters
from ftmodel.synthetic import PROCESSES
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.arms import group_by_seed
from pipelines.config.compose import compose_config
from pipelines.config.data import ProcessData
from pipelines.config.load import parse
from pipelines.config.schema import AUTO, Compute, Experiment, Precision, Strategy
from pipelines.evaluate.work import USUAL_PARTICLES, expected_passes
from pipelines.host.console import aligned
from pipelines.host.errors import UserError, not_one_of
from pipelines.parallel.scheduler import Graph
from pipelines.parallel.screen import duration
from pipelines.parallel.slots import make_slots
from pipelines.parallel.spreads import RECORD, power_rows
from pipelines.parallel.trial import Shape, speeds
from pipelines.train.core.segments import segments, steps_taken

GB, GIB = 1e9, 1 << 30
MICROSECOND = 1e-6
TEXT_PER_TOKEN = 4.0  # bytes, with a vocabulary of 2^17
CORPUS_SPEED = 40e6  # bytes of text a second that a core reads, hashes and writes (docs/data.md)
MAX_CPU_FLOPS = 1e17  # of an experiment: some weeks of two cores
# what a stage takes beside training and measuring, over the time until its libraries are loaded
# (LOG.md, 2026-11-28): `sources` with composing, the report with the look for changes at the end
START_SHARES = {"sources": 2.0, "data": 0.6, "tokenize": 0.6, "train": 1.6, "evaluate": 1.3}
START_SHARES |= {"suite": 2.0, "report": 4.0}
GPUS = tuple(1 << i for i in range(9))  # of the table of weak scaling


@dataclass
class Assumptions:
    flops: float  # FLOP/s of a GPU at its peak
    mfu: float
    memory: float  # GiB of a GPU
    price: float | None  # of a GPU for an hour


class RunPlan:
    """One run. Memory is in bytes of one worker, tokens_per_second of one GPU."""

    def __init__(self, spec: RunSpec, options: Assumptions) -> None:
        """Raises UserError if the tokenizer of the run's data is missing."""
        compute, config = spec.experiment.compute, spec.config
        self.vocabulary = vocabulary = vocab_size(spec)
        baseline = replace(config, latent_bits=0, latent_block=None)
        self.spec, self.size = spec, parameters(config, vocabulary)
        self.flops_per_token = flops_per_token(config, vocabulary).total
        self.times_baseline = self.flops_per_token / flops_per_token(baseline, vocabulary).total
        # trained on: under wsd the decays of smaller budgets, too
        self.tokens = steps_taken(segments(spec)) * spec.batch_tokens
        self.flops = self.flops_per_token * self.tokens
        # as many as passes through the model would take, though a filter's are fewer and slower
        self.evaluation_flops = self.flops_per_token / TRAINING * expected_passes(spec)
        gpu = compute.gpus_per_worker or 1  # a worker's share of one; 0: as if it had one
        self.gpus = compute.workers * gpu
        self.tokens_per_second = options.flops * options.mfu / self.flops_per_token
        self.days = self.tokens / (self.tokens_per_second * self.gpus) / 86_400
        self.evaluation_days = self.evaluation_flops / (options.flops * options.mfu) / 86_400
        self.cost: float | None = None
        if options.price is not None:
            self.cost = options.price * self.gpus * self.days * 24
        self.micro_batch = spec.optim.batch_size // (compute.workers * compute.accumulate)
        self.memory = worker_memory(compute, config, vocabulary, self.micro_batch, compute.workers)
        self.fits = self.memory.total <= options.memory * GIB * gpu


def vocab_size(spec: RunSpec) -> int:
    """The vocabulary size of a run's data; text too short for so many merges may end with less."""
    data = spec.data
    if isinstance(data, ProcessData):
        return len(PROCESSES[data.source].symbols)
    if data.vocab_size is not None:
        return data.vocab_size
    assert data.tokenizer is not None, "checked with the configuration"
    try:
        return Tokenizer.from_file(data.tokenizer).get_vocab_size()
    except Exception as error:  # tokenizers raises nothing more special
        raise UserError(
            f"data.{spec.run.data}.tokenizer: {data.tokenizer}: {error}; `ftlab "
            "pretrained` fetches those of pretrained models"
        ) from None


def worker_memory(
    compute: Compute, config: ModelConfig, vocabulary: int, micro_batch: int, workers: int
) -> Memory:
    """Memory of each of ``workers`` workers, with ``micro_batch`` sequences at a time."""
    return memory(
        config,
        vocabulary,
        micro_batch,
        half=compute.precision is not Precision.float32,
        workers=workers,
        sharded=compute.strategy is Strategy.fsdp and workers > 1,
        activation_checkpointing=compute.activation_checkpointing,
    )


def short_number(number: float) -> str:
    """Four digits with k, M or B for a thousand, a million, a thousand million."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number:g}"


def text_table(rows: list[dict[str, str]]) -> str:
    return "\n".join(aligned([list(rows[0]), *(list(row.values()) for row in rows)], right=True))


def costs_row(p: RunPlan, arm: str, seeds: int) -> dict[str, str]:
    """A row with the costs of one run of an arm."""
    kappa = p.spec.run.kappa_bits
    row = {
        "arm": arm,
        "seeds": str(seeds),
        "κ, bits": "" if kappa is None else f"{kappa:g}",
        "parameters": short_number(p.size.total),
        "of z's table": short_number(p.size.table) if p.size.table else "",
        "tokens": short_number(p.tokens),
        "FLOPs/token": f"{p.flops_per_token:.3e}",
        "÷ baseline": f"{p.times_baseline:.3f}",
        "FLOPs": f"{p.flops:.3e}",
        "GPUs": f"{p.gpus:g}",
        "tokens/s each": f"{p.tokens_per_second:,.0f}",
        "days": format_days(p.days),
        "evaluating": format_days(p.evaluation_days),
    }
    if p.cost is not None:
        row["cost"] = f"{p.cost:,.0f}"
    return row


def total(plans: list[RunPlan]) -> str:
    """What all runs need, in words."""
    days = sum(p.days for p in plans)
    costs = [p.cost for p in plans if p.cost is not None]
    cost = f", cost {sum(costs):,.0f}" if costs else ""
    flops = sum(p.flops for p in plans)
    evaluation = format_days(sum(p.evaluation_days for p in plans))
    return (
        f"{len(plans)} runs: {flops:.3e} FLOPs, {format_days(days)} days one by one, evaluating "
        f"{evaluation} on a GPU{cost}"
    )


def data_time(plans: list[RunPlan]) -> str:
    """How long stage data takes for the largest run, in words."""
    tokens = max(p.tokens for p in plans)
    size = tokens * TEXT_PER_TOKEN
    hours = size / CORPUS_SPEED / 3600
    return (
        f"text of {short_number(tokens)} tokens, about {size / GB:,.1f} GB: {hours:.2g} hours of a "
        "core in stage data; cores share its files out"
    )


def format_days(days: float) -> str:
    return f"{days:.2f}" if days >= 0.1 else f"{days:.2g}"


def memory_row(p: RunPlan, arm: str, limit: float) -> dict[str, str]:
    parts = {name.replace("_", " "): gib(b) for name, b in asdict(p.memory).items()}
    return {
        "arm": arm,
        "sequences": str(p.micro_batch),
        **parts,
        "sum": gib(p.memory.total),
        f"fits {limit:g}": "yes" if p.fits else "NO",
    }


def gib(size: float) -> str:
    """Bytes as GiB; two digits of what would be 0.0."""
    return f"{size / GIB:.2g}" if 0 < size < 0.05 * GIB else f"{size / GIB:.1f}"


def weak_scaling(
    here: RunPlan, options: Assumptions, joined: Interconnect
) -> Iterator[dict[str, str]]:
    """A row for each number of GPUs, with a batch that grows as they do."""
    compute, config, vocabulary = here.spec.experiment.compute, here.spec.config, here.vocabulary
    sharded = compute.strategy is Strategy.fsdp
    sequences = here.micro_batch * compute.accumulate
    tokens = sequences * config.context
    for gpus in GPUS:
        needed = worker_memory(compute, config, vocabulary, here.micro_batch, gpus).total
        sent = traffic(config, vocabulary, gpus, sharded, compute.accumulate)
        seconds = tokens / here.tokens_per_second
        duration = step(seconds, sent, gpus, joined, sharded, compute.accumulate)
        yield {
            "GPUs": str(gpus),
            "sequences": str(gpus * sequences),
            "GiB each": f"{needed / GIB:.1f}",
            f"fits {options.memory:g}": "yes" if needed <= options.memory * GIB else "NO",
            "GB sent": f"{sent.bytes / GB:.1f}",
            "computing, s": f"{duration.compute:.3f}",
            "sending, s": f"{duration.transfer:.3f}",
            "waiting, s": f"{duration.exposed:.3f}",
            "tokens/s": f"{gpus * tokens / duration.total:,.0f}",
            "efficiency": f"{duration.efficiency:.1%}",
        }


def show_weak_scaling(spec: RunSpec, options: Assumptions, joined: Interconnect) -> None:
    compute, known = spec.experiment.compute, spec.experiment.runs
    if spec.name not in known:
        raise UserError(f"--weak-scaling: {not_one_of(spec.name, known)}")
    here = RunPlan(spec, options)
    print(text_table([*weak_scaling(here, options, joined)]))
    print(
        f"computed, not measured: {spec.name}, {compute.strategy.value}, {compute.accumulate} "
        f"micro-batches of {here.micro_batch} sequences on each GPU;\n"
        f"{options.mfu:.0%} of {options.flops:.3g} FLOP/s while it computes; nodes of "
        f"{joined.per_node} GPUs; a GPU sends {joined.nvlink / GB:g} GB/s\nwithin its node, "
        f"{joined.network / GB:g} GB/s to others, {joined.latency / MICROSECOND:g} µs a hop; "
        f"{joined.overlap:.0%} of it overlaps with computation"
    )


def show_minutes(experiment: Experiment, plans: dict[str, RunPlan]) -> None:
    """Print how long the experiment takes on this machine's CPU, by a trial of its speed."""
    largest = max(p.memory.total for p in plans.values())
    slots = make_slots(experiment.compute, len(plans), largest, None)
    threads = experiment.compute.threads or int(slots[0]["OMP_NUM_THREADS"])
    bf16 = experiment.compute.precision is Precision.bf16
    shape_of = {
        name: Shape(p.spec.config, p.vocabulary, p.spec.optim, bf16) for name, p in plans.items()
    }
    shapes = list({repr(shape): shape for shape in shape_of.values()}.values())
    start, found = speeds(shapes, len(slots), threads)
    speed_of = {repr(shape): speed for shape, speed in zip(shapes, found, strict=True)}

    training, evaluation, speed = {}, {}, {}  # of each run: seconds, seconds, tokens a second
    for name, p in plans.items():
        speed[name] = speed_of[repr(shape_of[name])]
        training[name] = p.tokens / speed[name]
        evaluation[name] = p.evaluation_flops / (p.flops_per_token * speed[name])
    arms = group_by_seed(experiment.runs)
    rows = []
    for arm, (first, *others) in arms.items():
        kappa = experiment.runs[first].kappa_bits
        rows.append(
            {
                "arm": arm,
                "seeds": str(1 + len(others)),
                "κ, bits": "" if kappa is None else f"{kappa:g}",
                "parameters": short_number(plans[first].size.total),
                "tokens": short_number(plans[first].tokens),
                "tokens/s": f"{speed[first]:,.0f}",
                "training": duration(training[first]),
                "evaluation": duration(evaluation[first]),
            }
        )
    print(text_table(rows))
    graph = stage_graph(experiment)
    seconds = {name: START_SHARES[name.partition("@")[0]] * start for name in graph.needs}
    for name in plans:
        seconds[f"train@{name}"] += training[name]
        seconds[f"evaluate@{name}"] += evaluation[name]
    starting = sum(seconds.values()) - sum(training.values()) - sum(evaluation.values())
    print(
        f"{len(plans)} runs, min:s one by one: training {duration(sum(training.values()))}, "
        f"evaluation {duration(sum(evaluation.values()))}, all else {duration(starting)}"
    )
    side = f"{len(slots)} stages side by side" if len(slots) > 1 else "one stage after another"
    print(
        f"experiment {experiment.name}, {side}: about "
        f"{duration(graph.elapsed(seconds, len(slots)))} if nothing else runs here"
        f"{usual_particles(experiment)}"
    )
    print("not counted: installing, long texts, benchmarks, what the compiler gains and takes")


def show_power(experiment: Experiment) -> None:
    """Print what the experiment's seeds can show, by the spreads on record."""
    if not (rows := list(power_rows(experiment))):
        return
    if not any(row["finds"] for row in rows):
        print(f"what seeds can show: {RECORD} has no spread of these arms yet (`ftlab spreads`)")
        return
    print(f"\nwhat the seeds can show, in bits, with probability {POWER:g}; spreads: {RECORD}")
    print(text_table(rows))


def usual_particles(experiment: Experiment) -> str:
    if experiment.evaluation.particles != AUTO:
        return ""
    return f", with {USUAL_PARTICLES} particles at most where a calibration chooses"


def stage_graph(experiment: Experiment) -> Graph:
    """The stages of dvc.yaml, by what they wait for."""
    needs: dict[str, set[str]] = {"sources": set(), "report": set()}
    for data in experiment.data:
        needs[f"data@{data}"] = {"sources"}
        needs[f"tokenize@{data}"] = {f"data@{data}"}
    for name, run in experiment.runs.items():
        parent = run.init_from.run
        needs[f"train@{name}"] = {f"train@{parent}"} if parent else {f"tokenize@{run.data}"}
        stages = ["evaluate", "suite"] if name in experiment.suite_runs else ["evaluate"]
        for stage in stages:
            needs[f"{stage}@{name}"] = {f"train@{name}"}
            needs["report"].add(f"{stage}@{name}")
    return Graph(needs, {"sources"})


def main(
    overrides: Sequence[str],
    assumed: bool,
    flops: float,
    mfu: float,
    memory: float,
    price: float | None,
    weak_scaling: str | None,
    nvlink: float,
    network: float,
    per_node: int,
    latency: float,
    overlap: float,
) -> None:
    options = Assumptions(flops, mfu, memory, price)
    experiment = parse(compose_config(overrides), "conf/")
    if weak_scaling is not None:
        joined = Interconnect(nvlink * GB, network * GB, per_node, latency * MICROSECOND, overlap)
        show_weak_scaling(RunSpec(experiment, weak_scaling), options, joined)
        return
    of_run = {name: RunPlan(RunSpec(experiment, name), options) for name in experiment.runs}
    arms = group_by_seed(experiment.runs)
    small = sum(p.flops for p in of_run.values()) <= MAX_CPU_FLOPS
    if small and not assumed and not torch.cuda.is_available():
        show_minutes(experiment, of_run)
        show_power(experiment)
        return
    print(text_table([costs_row(of_run[runs[0]], arm, len(runs)) for arm, runs in arms.items()]))
    print(total([*of_run.values()]))
    print(
        f"experiment {experiment.name}, at {options.mfu:.0%} of {options.flops:.3g} FLOP/s, in "
        f"evaluation, too{usual_particles(experiment)}"
    )
    if text := [p for p in of_run.values() if not isinstance(p.spec.data, ProcessData)]:
        print(data_time(text))
    print("\nGiB of each worker when it needs most")
    print(
        text_table([memory_row(of_run[runs[0]], arm, options.memory) for arm, runs in arms.items()])
    )
    show_power(experiment)
