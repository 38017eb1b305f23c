"""Cross-entropy of the read-out in chunks of tokens, beside torch's two forms of it.

  ours     ftmodel/kernels/cross_entropy.py
  plain    F.linear_cross_entropy, all logits at once
  options  the same in chunks of as many tokens as ours; float32 only, since it heeds no autocast

Forward and backward pass of 2048 tokens, D = 256. Ratios above 1: ours is faster, or smaller.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ftmodel.kernels.cross_entropy import chunk_rows, linear_cross_entropy
from perf.measure import Figure, Work, figure, in_turns, peak_bytes, ratio


def passes(loss: Callable[..., Tensor], given: tuple[Tensor, ...], half: bool) -> None:
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        value = loss(*given)
    torch.autograd.grad(value, given[:2])


def measure(turns: int, quick: bool) -> list[Figure]:
    count, d = (64, 16) if quick else (2048, 256)
    found = []
    for v in (101,) if quick else (8192, 32768):
        torch.manual_seed(0)
        hidden, weight = torch.randn(count, d), torch.randn(v, d) * 0.02
        given = hidden.requires_grad_(), weight.requires_grad_(), torch.randint(v, (count,))
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=min(count, chunk_rows(v, "cpu")))
        losses = {
            "ours": linear_cross_entropy,
            "plain": F.linear_cross_entropy,
            "options": partial(F.linear_cross_entropy, options=options),
        }
        for half in (False, True):
            names = ("ours", "plain") if half else tuple(losses)
            arms: dict[str, Work] = {n: partial(passes, losses[n], given, half) for n in names}
            seconds = in_turns(arms, turns)
            most = {name: peak_bytes(work) for name, work in arms.items()}
            where = f"V = {v}, {'bf16' if half else 'float32'}"
            for name in names[1:]:
                found.append(ratio(f"{where}: {name} ÷ ours, time", seconds[name], seconds["ours"]))
                found.append(figure(f"{where}: {name} ÷ ours, peak", [most[name] / most["ours"]]))
    return found
