"""The frozen curves as files, and what of them moved.

    python -m tests.golden

A file has one family of curves. It begins with the kind of processor that computed them. A curve is
a title, and a row for each step or result:

    inject=memory per=every
       1 loss=6.1203 norm=1.2034
"""

from math import inf, isclose, isfinite
from os import environ
from pathlib import Path

import torch

from pipelines.host.pytorch import processor_name
from tests.golden.curves import SINGLE_DRAWS, Curves, Rows

ELSEWHERE = 1e-4  # of a number's value: the tolerance on another kind of processor
TINY = 1e-9  # two numbers that differ by less are alike there
KERNEL_VARIABLES = ("DNNL_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")


def kind() -> dict[str, str]:
    """The processor and what chooses its kernels: where these are the same, so is every bit."""
    able = torch.cpu.get_capabilities()
    instructions = [name for name in sorted(able) if able[name] and name[:3] in ("avx", "amx")]
    set_by_hand = [f"{name}={environ[name]}" for name in KERNEL_VARIABLES if name in environ]
    return {
        "processor": f"{processor_name()}, L2 cache {able.get('l2_cache_size')}",
        "instructions": " ".join(instructions),
        "kernels": " ".join([torch.backends.cpu.get_cpu_capability(), *set_by_hand]),
        "torch": str(torch.__version__),
    }


def path_of(family: str) -> Path:
    return Path(__file__).with_name(f"{family}.txt")


def write(path: Path, curves: Curves) -> None:
    lines = [f"{name}: {value}" for name, value in kind().items()]
    for title, rows in curves.items():
        lines += ["", title]
        for name, numbers in rows.items():
            lines.append(f"{name:>4} " + " ".join(f"{k}={x}" for k, x in numbers.items()))
    path.write_text("\n".join(lines) + "\n")


def frozen_curves(family: str) -> tuple[Curves, float]:
    """The curves of a file, and the share of its value by which a number may differ here."""
    head, *curves = path_of(family).read_text().rstrip().split("\n\n")
    found: Curves = {}
    for title, *rows in map(str.splitlines, curves):
        named = {name: pairs for name, *pairs in map(str.split, rows)}
        found[title] = {k: dict(pair.split("=") for pair in pairs) for k, pairs in named.items()}
    here = [f"{name}: {value}" for name, value in kind().items()]
    return found, 0.0 if head.splitlines() == here else ELSEWHERE


def differences(frozen: Curves, found: Curves, tolerance: float) -> list[str]:
    """In words, how curves moved. With a tolerance, those of single draws are not compared."""
    words = [f"{title}: not computed any more" for title in frozen if title not in found]
    words += [f"{title}: not frozen yet" for title in found if title not in frozen]
    for title in frozen:
        if title in found and not (tolerance and title.endswith(SINGLE_DRAWS)):
            words += [f"{title}: {said}" for said in moved(frozen[title], found[title], tolerance)]
    return words


def moved(frozen: Rows, found: Rows, tolerance: float) -> list[str]:
    """In words, of each number of a curve its first change and its largest."""
    changes: dict[str, list[tuple[float, str]]] = {}
    for row in {**frozen, **found}:
        old, new = frozen.get(row, {}), found.get(row, {})
        for name in {**old, **new}:
            a, b = old.get(name, "nothing"), new.get(name, "nothing")
            share = change(a, b, tolerance)
            if share:
                said = f"{row} from {a} to {b}"
                said += f" ({share:.1e} of its value)" if isfinite(share) else ""
                changes.setdefault(name, []).append((share, said))
    words = []
    for name, places in changes.items():
        first, largest = places[0][1], max(places, key=lambda place: place[0])[1]
        more = "" if largest == first else f"; most at {largest}"
        words.append(f"{name} moved at {first}{more}")
    return words


def change(old: str, new: str, tolerance: float) -> float:
    """The difference of two numbers as a share of the larger; 0 if that is tolerated, infinite if
    one of them is missing or not finite.
    """
    if old == new:
        return 0.0
    if "nothing" in (old, new) or not (isfinite(a := float(old)) and isfinite(b := float(new))):
        return inf
    if tolerance and isclose(a, b, rel_tol=tolerance, abs_tol=TINY):
        return 0.0
    return abs(a - b) / max(abs(a), abs(b))
