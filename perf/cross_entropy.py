"""Cross-entropy of the read-out in chunks of tokens, beside torch's two forms of it.

  ours     ftmodel/kernels/cross_entropy.py
  plain    F.linear_cross_entropy, all logits at once
  options  the same in chunks of as many tokens as ours; float32 only, since it heeds no autocast

Forward and backward pass of 2048 tokens, D = 256. Ratios above 1: ours is faster, or smaller.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ftmodel.kernels.cross_entropy import chunk_rows, linear_cross_entropy
from perf.measure import Figure, Work, figure, in_turns, peak_bytes, ratio

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def passes(loss: Loss, n: int, d: int, v: int, half: bool) -> Work:
    torch.manual_seed(0)
    hidden = torch.randn(n, d, requires_grad=True)
    weight = (torch.randn(v, d) * 0.02).requires_grad_()
    targets = torch.randint(v, (n,))

    def work() -> None:
        hidden.grad = weight.grad = None
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            value = loss(hidden, weight, targets)
        value.backward()
        hidden.grad = weight.grad = None

    return work


def measure(turns: int, quick: bool) -> list[Figure]:
    n, d = (64, 16) if quick else (2048, 256)
    found = []
    for v in (101,) if quick else (8192, 32768):
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=min(n, chunk_rows(v, "cpu")))

        def in_chunks(*given: Tensor, options: nn.LinearCrossEntropyOptions = options) -> Tensor:
            return F.linear_cross_entropy(*given, options=options)

        for half in (False, True):
            losses = {"ours": linear_cross_entropy, "plain": F.linear_cross_entropy}
            if not half:
                losses["options"] = in_chunks
            arms = {name: passes(loss, n, d, v, half) for name, loss in losses.items()}
            seconds = in_turns(arms, turns)
            most = {name: peak_bytes(work) for name, work in arms.items()}
            where = f"V = {v}, {'bf16' if half else 'float32'}"
            for name in list(arms)[1:]:
                found.append(ratio(f"{where}: {name} ÷ ours, time", seconds[name], seconds["ours"]))
                memory = most[name] / most["ours"]
                found.append(figure(f"{where}: {name} ÷ ours, peak", [memory], "ratio"))
    return found
