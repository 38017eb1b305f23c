"""Measure the binary mapper against the dense straight-through form, forward and backward.

  exact    ftmodel/mapper.py: a row look-up; the gradient over all codes in blocks
  dense    r = (Y + G − detach(G)) W, a one-hot Y and the probabilities G of all 2^H codes

Both take float32 logits, noise and a table, and leave the gradients of logits and table. The dense
form is the fastest of those tried: G as the outer product of the probabilities of both halves of
the bits (slower: exp of two products with the table of bits; doubling bit by bit), Y scattered into
zeros (as fast, but with more memory: one_hot, which counts in int64). Memory is the most that a
pass holds beyond its inputs and the table's gradient, (2^H, D), which is as large in any form.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ftmodel.mapper import binary_mapper, code_probabilities, pack_bits
from perf.measure import QUICK, TURNS, Measurement, in_turns, peak_bytes, print_table, ratio
from pipelines.host.command_line import command, run_command


def exact(o: Tensor, noise: Tensor, table: Tensor) -> Tensor:
    return binary_mapper(o, noise, table)[0]


def dense(o: Tensor, noise: Tensor, table: Tensor) -> Tensor:
    """Map logits and noise (N, H) and a table (2^H, D) to r (N, D)."""
    p, low = o.sigmoid(), o.shape[1] // 2
    g_low, g_high = code_probabilities(p[:, :low]), code_probabilities(p[:, low:])
    g = (g_high[:, :, None] * g_low[:, None, :]).flatten(1)  # (N, 2^H)
    y = torch.zeros_like(g).scatter_(1, pack_bits(noise < p)[:, None], 1.0)
    return (y + g - g.detach()) @ table


class MapperArm:
    """A form of the mapper with inputs of its own, the same for all arms of a shape."""

    def __init__(
        self,
        mapper: Callable[[Tensor, Tensor, Tensor], Tensor],
        tokens: int,
        bits: int,
        width: int,
    ) -> None:
        rng = torch.Generator().manual_seed(0)
        self.mapper = mapper
        self.o = torch.randn(tokens, bits, generator=rng).requires_grad_()
        self.noise = torch.rand(tokens, bits, generator=rng)
        self.table = (torch.randn(1 << bits, width, generator=rng) * 0.02).requires_grad_()
        self.rho = torch.randn(tokens, width, generator=rng)

    def __call__(self) -> None:
        self.o.grad = self.table.grad = None
        self.mapper(self.o, self.noise, self.table).backward(self.rho)


def beside_dense(tokens: int, bits: int, width: int, turns: int) -> list[Measurement]:
    arms = {form.__name__: MapperArm(form, tokens, bits, width) for form in (dense, exact)}
    seconds = in_turns(dict(arms), turns)
    most = {}
    for name, arm in arms.items():
        arm.o.grad = arm.table.grad = None
        most[name] = peak_bytes(arm) - arm.table.nbytes
    at = f"H = {bits}, D = {width}, {tokens} tokens"
    memory = f"{at}, dense ÷ exact: peak memory beside the table's gradient"
    return [
        *(Measurement(f"{at}, {name}: time", spent, "s") for name, spent in seconds.items()),
        ratio(f"{at}, dense ÷ exact: time", seconds["dense"], seconds["exact"], at_least=3.0),
        Measurement(memory, [most["dense"] / most["exact"]], "ratio", at_least=20.0),
    ]


@command(__doc__)
@TURNS
@QUICK
def main(turns: int, quick: bool) -> None:
    tokens, bits, widths = (32, 8, (16,)) if quick else (1024, 16, (512, 1536))
    found = [each for width in widths for each in beside_dense(tokens, bits, width, turns)]
    print_table(found, quick)


if __name__ == "__main__":
    run_command(main, "python -m perf.mapper")
