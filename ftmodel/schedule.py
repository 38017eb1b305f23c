"""Schedules, as factors of the peak learning rate and of κ; optimizer steps count from 0.

Both learning-rate schedules would reach 0 one step after the last.
"""

from math import cos, pi, sqrt


def cosine(step: int, warmup: int, steps: int) -> float:
    """Linear warm-up to 1, then a cosine."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + cos(pi * (step - warmup) / max(1, steps - warmup)))


def decay_start(decay: float, steps: int) -> int:
    """First step of the decay of wsd, which takes ``decay`` × ``steps`` steps, at least one."""
    return steps - max(1, round(decay * steps))


def wsd(step: int, warmup: int, decay: float, steps: int) -> float:
    """Linear warm-up to 1, then 1, then 1 − √x, x the share of the decay that has passed.

    Warm-up-stable-decay. Hägele et al. 2024 (arXiv 2405.18392) find this shape of the decay better
    than a linear one, and a decay of a fifth of all steps as good as a cosine. Up to
    ``decay_start``, if that is past the warm-up, it does not depend on ``steps``: all budgets share
    one trunk.
    """
    if step < warmup:
        return (step + 1) / warmup
    start = decay_start(decay, steps)
    return 1 - sqrt(max(0, step - start) / (steps - start))


def threshold(step: int, warmup: int) -> float:
    """Factor of κ: linear to 1 over ``warmup`` steps; 1 throughout with none, as in the paper.

    It is meant to let the decoder learn the task before it has z, and to make z encode first what
    is worth most. Results, which depend on the seed: LOG.md, 2026-11-22.
    """
    return min(1.0, (step + 1) / warmup) if warmup else 1.0
