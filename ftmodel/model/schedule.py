"""Schedules, as factors of the top learning rate and of κ; steps count optimizer steps from 0.

Both of the learning rate would reach 0 one step after the last one.
"""

from math import cos, pi, sqrt


def cosine(step: int, warmup: int, steps: int) -> float:
    """Linear warm-up to 1, then a cosine."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + cos(pi * (step - warmup) / max(1, steps - warmup)))


def decay_start(decay: float, steps: int) -> int:
    """The step at which wsd begins to decay: ``decay`` of all steps, but at least one, decay."""
    return steps - max(1, round(decay * steps))


def wsd(step: int, warmup: int, decay: float, steps: int) -> float:
    """Linear warm-up to 1, then 1, then 1 − √x, x the share of the decay that has passed.

    Hägele et al. 2024 (arXiv 2405.18392), who find this shape better than a linear one, and with a
    decay of a fifth of all steps as good as a cosine. Up to ``decay_start`` it is the same for any
    number of steps, if that is past the warm-up: one trunk that all budgets share.
    """
    if step < warmup:
        return (step + 1) / warmup
    start = decay_start(decay, steps)
    return 1 - sqrt(max(0, step - start) / (steps - start))


def threshold(step: int, warmup: int) -> float:
    """Of κ: linear to 1 over ``warmup`` steps; without any 1 throughout, as in the paper.

    Meant to let the decoder learn the task before it has z, and to make z say briefly what is
    worth most; what it did, and with which seeds it did not: LOG.md, 2026-11-22.
    """
    return min(1.0, (step + 1) / warmup) if warmup else 1.0
