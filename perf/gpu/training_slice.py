"""A slice of kappa_124m: the first minutes of its baseline and of its Free Transformer at κ = 1/2.

The project's own stages run in a folder of their own, with the experiment's settings for the
smallest budget, but less text (docs/performance.md, "On a GPU"). Where the hub is not in reach, the
text is the standard library's sources, on which only speed means something.
"""

import signal
from contextlib import chdir
from math import inf
from pathlib import Path
from statistics import median
from time import perf_counter

import lightning as L
import torch
from omegaconf import DictConfig

from ftmodel.costs.training import flops_per_token, utilisation
from perf.gpu.peaks import peak
from perf.measure import Figure, figure
from pipelines.artifacts.checkpoint import HISTORY, read_checkpoint
from pipelines.artifacts.curve import Curve, row_of, training_seconds
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.commands import doctor
from pipelines.config.compose import compose_config, write_params
from pipelines.config.derived import trainings
from pipelines.config.load import load_experiment, parse
from pipelines.config.schema import Experiment
from pipelines.host.errors import UserError
from pipelines.host.files import ROOT, tokens_folder
from pipelines.train.core.callbacks import StepCallback
from pipelines.train.core.segments import Start, find_start, make_manifest
from pipelines.train.core.trainer import Process, SegmentTraining, quiet

EXPERIMENT, DATA = "kappa_124m", "fineweb_edu"
ARMS = {"baseline": "baseline_s0", "free": "free_k1_2_s0"}
MINUTES = 20.0  # of training, half for each arm
MIN_TRAINING_SECONDS = 30.0  # for less it is not worth starting
ENDING_SECONDS = 60.0  # an arm stops this long before its time ends, for its last checkpoint
HUB_SETTINGS = ["data.fineweb_edu.max_bytes=200_000_000"]  # 46 M tokens
STDLIB_SETTINGS = [  # of the standard library
    "+part@data.fineweb_edu.parts.stdlib=files",
    "~data.fineweb_edu.parts.fineweb_edu",
    "data.fineweb_edu.parts.stdlib.root=stdlib",
    "data.fineweb_edu.validation_share=0.01",
]
WHOLE_STDLIB = ['data.fineweb_edu.parts.stdlib.pattern="**/*.py"']
TOY_SETTINGS = [
    "data.fineweb_edu.parts.stdlib.pattern=email/*.py",
    "data.fineweb_edu.validation_share=0.25",
    "data.fineweb_edu.vocab_size=384",
    "models.lm_124m.architecture={n_layers: 2, d_model: 16, n_heads: 2, n_kv_heads: 1}",
    "models.lm_124m.architecture={ffn_width: 32, context: 64, latent_bits: 8}",
    "models.lm_124m.optim={batch_size: 4, warmup_steps: 2}",
    "compute={accumulate: 2, compile: false}",
]
TOY_TOKENS = 5120


def composed(quick: bool) -> DictConfig:
    """Compose the experiment with its two arms alone."""
    own_text = STDLIB_SETTINGS + (TOY_SETTINGS if quick else WHOLE_STDLIB)
    online = not quick and doctor.hub().state == doctor.OK
    chosen = HUB_SETTINGS if online else own_text
    config = compose_config([f"experiment={EXPERIMENT}", "suite=none", *chosen])
    config.runs = {name: config.runs[name] for name in ARMS.values()}
    config.arms, config.seeds, config.expectation, config.suite_runs = {}, [], [], {}
    for run in config.runs.values():
        run.tokens, run.budgets = TOY_TOKENS if quick else run.budgets[0], []
    config.trainings = trainings(config.runs, config.name)
    parse(config, "the slice")
    return config


def make_slice_text(quick: bool) -> list[Figure]:
    """Compose the configuration, make the text and tokenize it."""
    from pipelines.data import build as data
    from pipelines.tokenize import build as tokenize

    if not Path("conf").exists():
        Path("conf").symlink_to(ROOT / "conf")
    write_params(composed(quick))
    data.main(DATA)
    tokenize.main(DATA)
    shards = Shards(tokens_folder(DATA))
    return [figure("tokens of text", [shards.metadata.splits["train"].tokens], "tokens")]


def start_of(spec: RunSpec) -> Start:
    return find_start(spec, make_manifest(spec, spec.shards()))


def curve(spec: RunSpec) -> Curve:
    """The training curve, up to the newest checkpoint of a run."""
    path = start_of(spec).checkpoint
    return [row_of(row) for row in read_checkpoint(path)[0][HISTORY]["rows"]] if path else []


class StopAfter(StepCallback):
    """Ends training after so many seconds, at a whole step (Lightning's Timer does not)."""

    def __init__(self, seconds: float) -> None:
        self.until = perf_counter() + seconds

    def on_step(self, trainer: L.Trainer) -> None:
        trainer.should_stop |= perf_counter() >= self.until


class SliceTraining(SegmentTraining):
    seconds = 0.0

    def build_callbacks(self, shards: Shards) -> list[L.Callback]:
        return [*super().build_callbacks(shards), StopAfter(self.seconds)]


def train(spec: RunSpec, seconds: float) -> None:
    """Train for ``seconds``, or until the arm's half of the slice is over."""
    left = 60 * MINUTES / len(ARMS) - training_seconds(curve(spec))
    if min(left, seconds) < MIN_TRAINING_SECONDS:
        return
    quiet()
    training = SliceTraining(spec, Process(), start_of(spec), None)
    training.seconds = min(left, seconds)
    training.train()


def arm_figures(spec: RunSpec, arm: str, device: str) -> list[Figure]:
    rows = curve(spec)
    if not rows:
        raise TimeoutError("no row of the training curve yet; run it again to continue")
    speed = speeds(rows)
    found = [
        figure(f"{arm}: training", [training_seconds(rows) / 60], "min"),
        figure(f"{arm}: seen", [rows[-1].tokens], "tokens"),
        figure(f"{arm}: speed", speed, "tokens/s"),
        figure(f"{arm}: training bound, last row", [rows[-1].bound_bits], "bits/token"),
    ]
    if rows[-1].kl_bits is not None:
        found.append(figure(f"{arm}: KL, last row", [rows[-1].kl_bits], "bits/token"))
    if device == "cuda" and (known := peak(torch.cuda.get_device_name())):
        flops = flops_per_token(spec.config, spec.shards().metadata.vocab_size)
        share = [utilisation(each, flops, known) for each in speed]
        found.append(figure(f"{arm}: model-FLOPs utilisation", share, ""))
    return found


def speeds(rows: Curve) -> list[float]:
    """Tokens per second; leaves out the first row, which includes compilation, if it can."""
    return [row.tokens_per_second for row in rows[len(rows) > 1 :]]


def figures_of_both(experiment: Experiment) -> list[Figure]:
    """Compare both arms at the last number of tokens for which both have a row."""
    baseline, free = (curve(RunSpec(experiment, name)) for name in ARMS.values())
    bounds = {row.tokens: row.bound_bits for row in baseline}
    if not (both := [row for row in free if row.tokens in bounds]):
        return []
    last = both[-1]
    difference = last.bound_bits - bounds[last.tokens]
    return [
        figure(f"bound at {last.tokens:,} tokens, free − baseline", [difference], "bits/token"),
        figure("speed, free ÷ baseline", [median(speeds(free)) / median(speeds(baseline))]),
    ]


def measure(
    turns: int, quick: bool, device: str, project: str, arm: str | None = None
) -> list[Figure]:
    """Make the text or train an arm, in a project that is kept, until this process is to end."""
    left = signal.getitimer(signal.ITIMER_REAL)[0] or inf
    begun = perf_counter()
    Path(project).mkdir(parents=True, exist_ok=True)
    with chdir(project):
        if arm is None:
            return make_slice_text(quick)
        if not tokens_folder(DATA).exists():
            raise UserError("it has no text yet: part `text` makes it")
        spec = RunSpec(load_experiment(), ARMS[arm])
        train(spec, left - ENDING_SECONDS - (perf_counter() - begun))
        return [*arm_figures(spec, arm, device), *figures_of_both(spec.experiment)]
