"""Training steps of our baseline beside those of public packages, and beside the machine's peak.

In float32 and in bf16, with blocks compiled or not; shape, batch, tokens and optimizer are the
same for all. A ratio is one of speeds: above 1, ours is faster than the faster of the two peers.
The share of the peak counts the model's FLOPs, as the planner does, in compiled steps of ours,
against the fastest of a few square products measured in the same run. Compilation comes with the
first step.
"""

from time import perf_counter

import torch
from torch._inductor.utils import fresh_cache

from ftmodel.costs import flops_per_token
from perf import steps
from perf.measure import Figure, figure, in_turns, ratio
from perf.steps import BATCH, QUICK, SHAPE, VOCABULARY

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}


def peak(dtype: torch.dtype, size: int) -> float:
    """FLOP/s of the fastest of a few products of two square matrices, up to ``size`` wide."""
    best = 0.0
    for n in (size // 4, size // 2, size):
        a, b = torch.randn(2, n, n).to(dtype)
        for _ in range(5):
            start = perf_counter()
            torch.mm(a, b)
            best = max(best, 2 * n**3 / (perf_counter() - start))
    return best


def measure(turns: int, quick: bool) -> list[Figure]:
    config = QUICK if quick else SHAPE
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, (BATCH, config.context + 1))
    makers = {"ours": steps.ours, "Llama": steps.llama, "litgpt": steps.litgpt}
    modes = (False,) if quick else (False, True)  # compiled
    arms, found = {}, []
    for precision in DTYPES:
        for compiled in modes:
            for peer, make in makers.items():
                made = make(config, VOCABULARY, compiled)
                arms[precision, compiled, peer] = steps.step(
                    made, tokens, precision == "bf16", steps.IN_A_ROW
                )
    if not quick:
        with fresh_cache():
            only = steps.step(steps.ours(config, VOCABULARY, True), tokens)
            start = perf_counter()
            only()
            first = perf_counter() - start
    seconds = in_turns(arms, turns)
    read = steps.IN_A_ROW * tokens[:, 1:].numel()
    flops = flops_per_token(config, VOCABULARY).total * read
    for precision, dtype in DTYPES.items():
        for compiled in modes:
            here = f"{precision}, {'compiled' if compiled else 'not compiled'}"
            mine = seconds[precision, compiled, "ours"]
            both = [seconds[precision, compiled, peer] for peer in ("Llama", "litgpt")]
            for peer, theirs in zip(("Hugging Face's Llama", "litgpt's GPT"), both, strict=True):
                found.append(ratio(f"{here}: ours ÷ {peer}", theirs, mine))
            fastest = [min(pair) for pair in zip(*both, strict=True)]
            found.append(ratio(f"{here}: ours ÷ the faster", fastest, mine, at_least=1.0))
            speed = [read / each for each in mine]
            found.append(figure(f"{here}: ours", speed, "tokens/s"))
        best = peak(dtype, 512 if quick else 4096)
        fast = seconds[precision, not quick, "ours"]  # compiled
        found.append(figure(f"{precision}: peak of products", [best / 1e9], "GFLOP/s"))
        share = [flops / each / best for each in fast]
        found.append(figure(f"{precision}, fastest: ours, share of it", share, ""))
    for compiled in modes:
        over, under = (seconds[precision, compiled, "ours"] for precision in ("float32", "bf16"))
        name = f"{'compiled' if compiled else 'not compiled'}: bf16 ÷ float32, speed of ours"
        found.append(ratio(name, over, under))
    if not quick:
        for precision in DTYPES:
            plain, quicker = (seconds[precision, compiled, "ours"] for compiled in (False, True))
            found.append(ratio(f"{precision}: compiled ÷ not, speed of ours", plain, quicker))
        found.append(figure("first step of ours, compiled, nothing cached", [first], "s"))
    return found
