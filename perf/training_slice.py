"""Train a slice of kappa_124m: its baseline and its Free Transformer at κ = 1/2, on few tokens.

    python -m perf.training_slice bench/gpu/slice

The project's own stages compose the experiment in that folder, make the text, tokenize it and train
both runs. Called again, it goes on: text that is there is kept, and stage train continues from its
last checkpoint. The text is 200 MB of the experiment's own. Where the hub is not in reach, it is
the standard library's sources, on which only speed means something.
"""

import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path
from statistics import median

import click
import torch

from ftmodel.costs.training import flops_per_token, utilisation
from perf.measure import QUICK, Measurement, print_table
from perf.training import gpu_peak
from pipelines.artifacts.curve import read_curve
from pipelines.artifacts.run_spec import RunSpec
from pipelines.commands import doctor
from pipelines.config import compose
from pipelines.config.load import load_experiment
from pipelines.data import build as data
from pipelines.host.command_line import command, run_command
from pipelines.host.files import ROOT, tokens_folder
from pipelines.tokenize import build as tokenize
from pipelines.train import stage as train

DATA = "fineweb_edu"
RUNS = {"baseline": "baseline_s0", "free": "free_k1_2_s0"}
TOKENS = 200_000_000  # 7 and 9 minutes on an H100, at the speeds of LOG.md, 2026-11-27
FROM_HUB = ["data.fineweb_edu.max_bytes=200_000_000"]  # 46 M tokens
FROM_STDLIB = [
    "+part@data.fineweb_edu.parts.stdlib=files",
    "~data.fineweb_edu.parts.fineweb_edu",
    "data.fineweb_edu.parts.stdlib.root=stdlib",
    'data.fineweb_edu.parts.stdlib.pattern="**/*.py"',
    "data.fineweb_edu.validation_share=0.01",
]
TOY_TOKENS = 5120
TOY = [
    *FROM_STDLIB,
    "data.fineweb_edu.parts.stdlib.pattern=email/*.py",
    "data.fineweb_edu.validation_share=0.25",
    "data.fineweb_edu.vocab_size=384",
    "models.lm_124m.architecture={n_layers: 2, d_model: 16, n_heads: 2, n_kv_heads: 1}",
    "models.lm_124m.architecture={ffn_width: 32, context: 64, latent_bits: 8}",
    "models.lm_124m.optim={batch_size: 4, warmup_steps: 2}",
    "compute={accumulate: 2, compile: false}",
]


def settings(quick: bool) -> list[str]:
    """The slice as overrides of conf/."""
    tokens = TOY_TOKENS if quick else TOKENS
    arms = [f"arms.{arm}={{tokens: {tokens}, budgets: []}}" for arm in ("baseline", "free_k1_2")]
    changes = TOY if quick else FROM_HUB if doctor.hub().state == doctor.OK else FROM_STDLIB
    return ["experiment=kappa_124m", "suite=none", "seeds=[0]", "expectation=[]", *arms, *changes]


def train_both(quick: bool) -> None:
    """Train both runs in the current folder, or what is left to train of them."""
    if not tokens_folder(DATA).exists():
        if not Path("conf").exists():
            Path("conf").symlink_to(ROOT / "conf")
        compose.main(settings(quick))
        data.main(DATA)
        tokenize.main(DATA)
    for run_name in RUNS.values():
        train.main(run_name)


def measured() -> list[Measurement]:
    experiment, found, speed, bound = load_experiment(), [], {}, {}
    peak = gpu_peak(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
    for arm, run_name in RUNS.items():
        spec = RunSpec(experiment, run_name)
        curve = read_curve(spec.results / "curve.csv")
        # the first row includes compilation
        speed[arm] = [row.tokens_per_second for row in curve[1:]]
        bound[arm] = curve[-1].bound_bits
        found += [
            Measurement(f"{arm}: tokens seen", [curve[-1].tokens]),
            Measurement(f"{arm}: speed", speed[arm], "tokens/s"),
            Measurement(f"{arm}: training bound, last row", [bound[arm]], "bits/token"),
        ]
        if peak:
            flops = flops_per_token(spec.config, spec.shards().metadata.vocab_size)
            shares = [utilisation(each, flops, peak) for each in speed[arm]]
            found.append(Measurement(f"{arm}: model-FLOPs utilisation", shares))
    times = median(speed["free"]) / median(speed["baseline"])
    difference = bound["free"] - bound["baseline"]
    return [
        *found,
        Measurement("speed, free ÷ baseline", [times], "ratio"),
        Measurement("training bound, free − baseline", [difference], "bits/token"),
    ]


@command(__doc__)
@click.argument("folder", type=click.Path(path_type=Path))
@QUICK
def main(folder: Path, quick: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with chdir(folder):
        with redirect_stdout(sys.stderr):
            train_both(quick)
        print_table(measured(), quick)


if __name__ == "__main__":
    run_command(main, "python -m perf.training_slice")
