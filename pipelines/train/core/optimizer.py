"""The optimizers: AdamW, or Muon for the matrices of blocks and AdamW for the rest."""

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Muon, Optimizer

from ftmodel.model.free_transformer import FreeTransformer
from pipelines.config.schema import Optim, OptimizerName
from pipelines.train.core.acceleration import blocks_of

Groups = list[dict[str, Any]]


class MuonAndAdamW(Optimizer):
    """Two optimizers as one, with one state, for Lightning's loop, checkpoints and schedule."""

    def __init__(self, *parts: Optimizer) -> None:
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        with torch.enable_grad():
            loss = closure() if closure else None
        groups = iter(self.param_groups)  # a checkpoint's, once one has been loaded
        for part in self.parts:
            part.state = self.state
            part.param_groups = [next(groups) for _ in part.param_groups]
            part.step()
        return loss


def width_factor(optim: Optim, width: int) -> float:
    """The factor on the learning rate of matrices with ``width`` input channels. It makes the
    change of activations in a step independent of the width (Yang et al. 2023, arXiv 2310.17813):
    the spectral norm of an update grows as the width under AdamW, as its root under Muon.
    """
    if optim.width_scaling is None:
        return 1.0
    ratio: float = optim.width_scaling / width
    return ratio if optim.name is OptimizerName.adamw else ratio**0.5


def make_optimizer(
    model: FreeTransformer,
    optim: Optim,
    copied: Collection[str] = (),
    copied_lr: float | None = None,
) -> Optimizer:
    """The optimizer of ``model``. Parameters with a name in ``copied`` have the learning rate
    ``copied_lr``, unless that is None.

    Each parameter is in one group, and the first group has the learning rate ``optim.lr``.
    """
    decay, lr = optim.weight_decay, optim.lr
    hidden = {p for block in blocks_of(model) for p in block.parameters() if p.dim() == 2}
    muons = hidden if optim.name is OptimizerName.muon else set()
    factor = width_factor(optim, model.config.d_model)
    groups: dict[tuple[bool, float, float], list[Tensor]] = {(False, lr, decay): []}
    for name, parameter in model.named_parameters():
        own = copied_lr if name in copied else None
        rate = lr if own is None else own
        if name.startswith("latent."):
            rate *= optim.latent_lr
        if parameter in hidden:
            rate *= factor
        key = parameter in muons, rate, decay if parameter.dim() > 1 else 0.0
        groups.setdefault(key, []).append(parameter)

    def listed(muon: bool) -> Groups:
        return [
            {"params": parameters, "lr": rate, "weight_decay": wd}
            for (of_muon, rate, wd), parameters in groups.items()
            if parameters and of_muon == muon
        ]

    adamw = AdamW(listed(False), lr=lr, betas=(optim.beta1, optim.beta2), fused=True)
    if not muons:
        return adamw
    return MuonAndAdamW(adamw, Muon(listed(True), lr=lr, adjust_lr_fn="match_rms_adamw"))
