"""FLOPs and bytes of a training step, counted by torch on tensors without storage.

The step is ``training_loss`` and its backward pass, so a new design is counted like any other.
Counts are affine in the numbers of blocks below and above the injection: two small models determine
the counts of a large one (``whole``).

Shapes: B = ``batch`` sequences of T = ``context`` tokens.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from math import gcd
from typing import Any
from unittest.mock import patch
from weakref import finalize

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

from ftmodel import mapper
from ftmodel.config import LatentDesign, ModelConfig
from ftmodel.kernels import cross_entropy
from ftmodel.layers import Block, use_kernels
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss

aten = torch.ops.aten
ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu
MANY_SEQUENCES = 1 << 16  # so that work done once per step counts for nothing per token
ONE_BLOCK = 1 << 62  # elements, so that a product is a single block, whatever its shape

Count = Callable[..., np.ndarray]  # integer counts of a model; the first argument is a ModelConfig


def elements(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def undrawn_model(
    config: ModelConfig, vocab_size: int, device: str = "cuda", checkpointing: bool = False
) -> FreeTransformer:
    """Make a model without drawing its weights, which would take as long as counting, even without
    storage. With ``checkpointing`` the backward pass recomputes each block.
    """
    with patch.object(nn.init, "normal_"), patch.object(nn.init, "kaiming_uniform_"):
        model = FreeTransformer(config, vocab_size)
    if checkpointing:
        apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    return use_kernels(model) if device == "cpu" else model


def remembered(count: Count) -> Count:
    known: dict[str, np.ndarray] = {}

    @wraps(count)
    def look_up(config: ModelConfig, *arguments: Any) -> np.ndarray:
        if not config.latent_bits:  # a baseline has no design
            config = replace(config, latent=LatentDesign(), latent_block=None)
        key = repr((config, arguments))
        if key not in known:
            known[key] = count(config, *arguments)
        return known[key]

    return look_up


def whole(count: Count) -> Count:
    """Extrapolate ``count``, affine in the numbers of blocks below and above the injection, from
    two models: the smallest with the same kinds of blocks, and the next one towards the model.
    """

    @wraps(count)
    def extrapolated(config: ModelConfig, *arguments: Any) -> np.ndarray:
        lower = config.lower_blocks if config.latent_bits else 0
        least, upper = min(lower, 1), config.n_layers - lower
        steps = gcd(lower - least, upper - 1)
        if steps < 2:
            return count(config, *arguments)

        def after(n: int) -> np.ndarray:
            below = least + n * (lower - least) // steps
            layers = below + 1 + n * (upper - 1) // steps
            return count(replace(config, n_layers=layers, latent_block=below + 1), *arguments)

        first = after(0)
        return first + steps * (after(1) - first)

    return remembered(extrapolated)


# --- operators, and kernels of a GPU


@register_flop_formula(ATTENTION)
def attention_flops(q: Any, k: Any, *_: Any, **__: Any) -> int:
    """FLOPs of scores and weighted sums, given shapes: queries (B, N, T, E), keys (B, M, S, E)."""
    return 4 * q[0] * q[1] * q[2] * q[3] * k[2]


def flops_in(counter: FlopCounterMode, part: str = "") -> np.ndarray:
    """FLOPs of products and of attention, (2,): of the whole model, or of the modules of a
    ``part``, "blocks" or "latent".
    """
    names = ["Global"]
    if part:  # a module's count includes the modules within it
        inside = [n for n in counter.flop_counts if n.startswith(f"FreeTransformer.{part}.")]
        names = [n for n in inside if n.rpartition(".")[0] not in inside]
    total = np.zeros(2, dtype=object)
    for name in names:
        for operator, flops in counter.flop_counts[name].items():
            total[int("attention" in operator.__name__)] += flops
    return total


class FusedNorm(torch.autograd.Function):
    """RMSNorm as a fused GPU kernel: it keeps the input and 1 / rms, not the normalised input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, x.new_empty(*x.shape[:-1], 1))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


def fused_norm(x: Tensor, _shape: object, weight: Tensor, _eps: object) -> Tensor:
    y: Tensor = FusedNorm.apply(x, weight)
    return y


@contextmanager
def on_device(device: str, in_blocks: bool) -> Iterator[None]:
    """Within this context tensors have no storage. The model's code sees CPU tensors, but does what
    it does on ``device``; unless ``in_blocks``, work that it splits into blocks stays whole.
    """
    chunk_rows = cross_entropy.chunk_rows

    def rows(vocabulary: int, _: str) -> int:
        return chunk_rows(vocabulary, device) if in_blocks else ONE_BLOCK

    with ExitStack() as within:
        within.enter_context(FakeTensorMode())
        within.enter_context(patch.object(mapper, "CPU_BLOCK", ONE_BLOCK))
        within.enter_context(patch.object(cross_entropy, "chunk_rows", rows))
        if device != "cpu":
            within.enter_context(patch.object(F, "rms_norm", fused_norm))
        yield


class LiveBytes(TorchDispatchMode):
    """Counts bytes of live storages that operators made, without the parameters and gradients of
    ``model``. Autocast's ``copies`` of parameters are counted apart.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        tensors = [t for p in model.parameters() for t in (p, p.grad) if t is not None]
        self.old = {t.untyped_storage()._cdata for t in tensors}
        self.live: dict[int, tuple[int, int]] = {}  # number and bytes by storage
        self.copies: dict[int, tuple[int, int]] = {}
        self.made = self.most = self.most_copies = 0
        self.ended = False

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = operator(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if not isinstance(tensor, Tensor):
                continue
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self.old and key not in self.live and key not in self.copies:
                copied = operator is aten._to_copy.default
                copied = copied and args[0].untyped_storage()._cdata in self.old
                held = self.copies if copied else self.live
                self.made += 1
                held[key] = self.made, storage.nbytes()
                finalize(storage, held.pop, key)
        if not self.ended:
            # its input is first converted, into a tensor that no other operator sees
            converts = operator is aten.log_softmax.int_out and args[0].dtype != result.dtype
            passing = result.nbytes if converts else 0
            self.most = max(self.most, self.kept + self.copied + passing)
            self.most_copies = max(self.most_copies, self.copied)
        return result

    def kept_since(self, made: int) -> int:
        """Bytes of live storages, without copies, that were made after the first ``made``."""
        return sum(n for number, n in self.live.values() if number > made)

    @property
    def kept(self) -> int:
        return self.kept_since(0)

    @property
    def copied(self) -> int:
        return sum(n for _, n in self.copies.values())

    def end(self, *_: object) -> None:
        """Keep ``most`` as it is from now on."""
        self.ended = True


# --- counts


def step_data(config: ModelConfig, batch: int) -> tuple[Tensor | None, ...]:
    """Inputs, targets, noise and documents of a step."""
    tokens = torch.zeros(batch, config.context + 1, dtype=torch.long)
    inputs, targets, documents = tokens[:, :-1], tokens[:, 1:], torch.zeros_like(tokens[:, 1:])
    noise = torch.zeros(*inputs.shape, config.noise_width) if config.noise_width else None
    return inputs, targets, noise, documents if config.document_mask else None


def step_loss(
    model: FreeTransformer, data: tuple[Tensor | None, ...], half: bool = False
) -> Tensor:
    """Compute the loss, under bf16 autocast if ``half``; only its graph stays alive."""
    inputs, targets, noise, documents = data
    assert inputs is not None and targets is not None
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        return training_loss(model, inputs, targets, noise, 0.0, documents).total


@whole
def sizes(config: ModelConfig, vocab_size: int) -> np.ndarray:
    """Elements of all parameters, of one block, and of the post-sampler."""
    with FakeTensorMode():
        model = undrawn_model(config, vocab_size)
    table = model.latent.post_sampler.numel() if model.latent else 0
    return np.array([elements(model), elements(model.blocks[0]), table])


@whole
def step_flops(config: ModelConfig, vocab_size: int) -> np.ndarray:
    """FLOPs of a step of MANY_SEQUENCES: products in decoder blocks; attention there, over all T
    positions; both in the latent's modules; products outside modules: read-out and mapper.

    Products in float32 have two kernels on a CPU, so they are counted under autocast. Attention's
    scores count once: the backward pass counts as twice the forward pass.
    """
    with on_device("cuda", in_blocks=False):
        model = undrawn_model(config, vocab_size)
        with FlopCounterMode(display=False) as forward:
            loss = step_loss(model, step_data(config, MANY_SEQUENCES), half=True)
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    decoder, latent = (3 * flops_in(forward, part) for part in ("blocks", "latent"))
    products = (flops_in(forward) + flops_in(backward))[0]
    return np.array([*decoder, sum(latent), products - decoder[0] - latent[0]], dtype=object)


@whole
def step_bytes(
    config: ModelConfig, vocab_size: int, batch: int, half: bool, checkpointing: bool, device: str
) -> np.ndarray:
    """Bytes held at the end of the forward pass, and the most copies of parameters during it."""
    with on_device(device, in_blocks=False):
        model = undrawn_model(config, vocab_size, device, checkpointing)
        with LiveBytes(model) as live:
            _loss = step_loss(model, step_data(config, batch), half)
        return np.array([live.kept, live.most_copies], dtype=object)


@remembered
def loss_bytes(
    config: ModelConfig, vocab_size: int, batch: int, half: bool, checkpointing: bool, device: str
) -> np.ndarray:
    """Bytes that the loss keeps, in a model whose last block is ``config``'s; and the peak beyond
    what blocks keep and copies of parameters, while the loss is computed or the backward pass is in
    that block.
    """
    with on_device(device, in_blocks=True):
        model = undrawn_model(config, vocab_size, device, checkpointing)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        made: list[int] = []
        with LiveBytes(model) as live:

            def end_at_gradient(_module: nn.Module, _inputs: Any, embedded: Tensor) -> None:
                embedded.register_hook(live.end)  # the last gradient of the backward pass

            model.register_forward_hook(lambda *_: made.append(live.made))
            model.embedding.register_forward_hook(end_at_gradient)
            loss = step_loss(model, step_data(config, batch), half)
            of_loss = live.kept_since(*made)
            kept = live.kept - of_loss
            forward = live.most - kept - live.most_copies
            kept += live.copied
            live.most = 0
            loss.backward()
        return np.array([of_loss, max(forward, live.most - kept)], dtype=object)
