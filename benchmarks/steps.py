"""Whole training steps, ours and those of public packages: forward, loss, backward, clip, AdamW.

All are given the same shape, batch and tokens, the same optimizer with the same settings, and have
the loss that their package trains with. Shapes: B sequences of T tokens, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from importlib import import_module
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.measure import Missing, Work
from ftmodel.config import ModelConfig
from ftmodel.objective import training_loss
from ftmodel.transformer import FreeTransformer

Loss = Callable[[Tensor, Tensor], Tensor]  # of inputs and targets (B, T)
KAPPA = 1.0  # bits


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def step(model: nn.Module, loss: Loss, tokens: Tensor, half: bool = False) -> Work:
    """A training step of ``model`` on ``tokens`` (B, T + 1), under bf16 autocast if ``half``."""
    model.train()
    optimizer = optimizer_of(model)
    parameters = list(model.parameters())

    def work() -> None:
        with torch.autocast("cpu", torch.bfloat16) if half else nullcontext():
            value = loss(tokens[:, :-1], tokens[:, 1:])
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return work


def ours(config: ModelConfig, vocabulary: int, compiled: bool = False) -> tuple[nn.Module, Loss]:
    torch.manual_seed(0)
    model = FreeTransformer(config, vocabulary)
    if compiled:
        for block in blocks_of(model):
            block.compile()

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        noise = torch.rand(*inputs.shape, config.latent_bits) if config.latent_bits else None
        return training_loss(model, inputs, targets, noise, KAPPA).total

    return model, loss
