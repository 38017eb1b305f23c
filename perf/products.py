"""Training steps of the quickstart's presets, float32, with products by oneDNN and by PyTorch.

On processors where PyTorch's products are as fast (ftmodel/kernels/product.py) there is nothing to
compare, and the measurement is skipped. Arms of a preset have the same batch and the same start.
"""

from dataclasses import replace

import torch
import yaml

from ftmodel.kernels import product
from ftmodel.model.config import ModelConfig
from perf import steps
from perf.measure import Figure, Missing, Work, figure, in_turns, ratio
from pipelines.common.atomic_files import ROOT

PRESETS = {"target_small": 29, "text_small": 2048}  # the quickstart's vocabularies


def switched(work: Work, onednn: bool) -> Work:
    def run() -> None:
        before, product.ONEDNN = product.ONEDNN, onednn
        try:
            work()
        finally:
            product.ONEDNN = before

    return run


def measure(turns: int, quick: bool) -> list[Figure]:
    if not product.ONEDNN and not quick:
        raise Missing("a processor on which oneDNN multiplies faster than PyTorch's MKL")
    found = []
    for name, vocabulary in PRESETS.items():
        preset = yaml.safe_load((ROOT / f"conf/model/{name}.yaml").read_text(encoding="utf-8"))
        free = ModelConfig(**preset["architecture"])
        batch = 2 if quick else preset["optim"]["batch_size"]
        tokens = torch.randint(vocabulary, (batch, free.context + 1))
        for compiled in (False,) if quick else (False, True):
            for arm, config in {"baseline": replace(free, latent_bits=0), "free": free}.items():
                arms = {}
                for onednn in (False, True):
                    torch.manual_seed(0)
                    made = steps.ours(config, vocabulary, compiled)
                    arms[str(onednn)] = switched(steps.training_work(made, tokens, steps=3), onednn)
                seconds = in_turns(arms, turns)
                speed = [3 * tokens[:, 1:].numel() / each for each in seconds["True"]]
                at = f"{name}, {arm}, {'compiled' if compiled else 'not compiled'}"
                over = ratio(f"{at}: oneDNN ÷ PyTorch's, speed", seconds["False"], seconds["True"])
                found += [figure(f"{at}: by oneDNN", speed, "tokens/s"), over]
    return found
