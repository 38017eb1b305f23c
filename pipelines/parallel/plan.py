"""Estimates an experiment's cost without running it (ftmodel/costs/)."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from tokenizers import Tokenizer

from ftmodel.config import ModelConfig
from ftmodel.costs.scaling import Interconnect, step, traffic
from ftmodel.costs.training import Memory, flops_per_token, memory, parameters
from ftmodel.synthetic import PROCESSES
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.arms import group_by_seed
from pipelines.config.compose import compose_config
from pipelines.config.data import ProcessData
from pipelines.config.load import parse
from pipelines.config.schema import Compute, Precision, Strategy
from pipelines.host.console import aligned
from pipelines.host.errors import UserError, not_one_of
from pipelines.train.core.segments import segments, steps_taken

GB, GIB = 1e9, 1 << 30
MICROSECOND = 1e-6
TEXT_PER_TOKEN = 4.0  # bytes, with a vocabulary of 2^17
CORPUS_SPEED = 40e6  # bytes of text a second that a core reads, hashes and writes (docs/data.md)
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
        gpu = compute.gpus_per_worker or 1  # a worker's share of one; 0: as if it had one
        self.gpus = compute.workers * gpu
        self.tokens_per_second = options.flops * options.mfu / self.flops_per_token
        self.days = self.tokens / (self.tokens_per_second * self.gpus) / 86_400
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
    return f"{len(plans)} runs: {flops:.3e} FLOPs, {format_days(days)} days one by one{cost}"


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


def main(
    overrides: Sequence[str],
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
    print(text_table([costs_row(of_run[runs[0]], arm, len(runs)) for arm, runs in arms.items()]))
    print(total([*of_run.values()]))
    print(
        f"experiment {experiment.name}, at {options.mfu:.0%} of {options.flops:.3g} FLOP/s; "
        "evaluation is not counted"
    )
    if text := [p for p in of_run.values() if not isinstance(p.spec.data, ProcessData)]:
        print(data_time(text))
    print("\nGiB of each worker when it needs most")
    print(
        text_table([memory_row(of_run[runs[0]], arm, options.memory) for arm, runs in arms.items()])
    )
