"""Training steps of our baseline beside Hugging Face's Llama, and beside the machine's peak.

In float32 and in bf16, with blocks compiled or not; shape, batch, tokens and optimizer are the
same for both. Ratios compare speeds: above 1, ours is faster. The share of the peak counts the
model's FLOPs, as the planner does, in compiled steps of ours, against the fastest of a few square
products measured in the same run.
"""

import torch

from ftmodel.costs.training import flops_per_token
from perf import steps
from perf.measure import Figure, figure, in_turns, ratio
from perf.steps import BATCH, QUICK, SHAPE, VOCABULARY

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}


def measure(turns: int, quick: bool) -> list[Figure]:
    config = QUICK if quick else SHAPE
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, (BATCH, config.context + 1))
    modes = ("not compiled",) if quick else ("not compiled", "compiled")
    arms, found = {}, []
    for precision in DTYPES:
        for mode in modes:
            for arm, make in {"ours": steps.ours, "Llama": steps.llama}.items():
                made = make(config, VOCABULARY, mode == "compiled")
                work = steps.training_work(made, tokens, precision == "bf16", steps.STEPS_PER_TURN)
                arms[precision, mode, arm] = work
    seconds = in_turns(arms, turns)
    read = steps.STEPS_PER_TURN * tokens[:, 1:].numel()
    flops = flops_per_token(config, VOCABULARY).total * read
    for precision, dtype in DTYPES.items():
        for mode in modes:
            here, mine = f"{precision}, {mode}", seconds[precision, mode, "ours"]
            theirs = seconds[precision, mode, "Llama"]
            found.append(ratio(f"{here}: ours ÷ Llama", theirs, mine, at_least=1.0))
            found.append(figure(f"{here}: ours", [read / each for each in mine], "tokens/s"))
        best = steps.products(dtype, 512 if quick else 4096, turns)
        share = [flops / each / best for each in mine]
        found.append(figure(f"{precision}: peak of products", [best / 1e9], "GFLOP/s"))
        found.append(figure(f"{precision}, fastest: ours, share of it", share, ""))
    return found
