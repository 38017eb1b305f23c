"""Whole training steps of our model and of Hugging Face's: forward, loss, backward, clip, AdamW.

  ours   either arm
  llama  LlamaForCausalLM, attention by PyTorch's fused kernel

Shapes: B sequences of T tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ftmodel.config import ModelConfig
from ftmodel.layers import use_kernels
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss
from perf.measure import Work, in_turns
from pipelines.train.core.acceleration import blocks_of
from tests.support.hugging_face import to_hugging_face

Loss = Callable[[Tensor], Tensor]  # takes tokens (B, T + 1)
VOCABULARY, BATCH = 8192, 8
SHAPE = ModelConfig(8, 256, 4, 4, 704, context=256)
QUICK = ModelConfig(2, 32, 2, 2, 48, context=16)
KAPPA = 1.0  # bits
STEPS_PER_TURN = 3  # the first finds caches and allocator as another arm left them


def compiled(blocks: Sequence[nn.Module]) -> None:
    """Compile each block on its own, as stage train does."""
    torch._dynamo.config.recompile_limit = 64  # arms share the code of a block, and its limit of 8
    for block in blocks:
        block.compile()


def ours(
    c: ModelConfig,
    vocabulary: int,
    compile_blocks: bool = False,
    documents: Tensor | None = None,
) -> tuple[nn.Module, Loss]:
    model = use_kernels(FreeTransformer(c, vocabulary))
    if compile_blocks:
        compiled(blocks_of(model))

    def loss(tokens: Tensor) -> Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        noise = None
        if c.latent_bits:
            noise = torch.rand(*inputs.shape, c.latent_bits, device=tokens.device)
        return training_loss(model, inputs, targets, noise, KAPPA, documents).total

    return model, loss


def llama(c: ModelConfig, vocabulary: int, compile_blocks: bool = False) -> tuple[nn.Module, Loss]:
    model = to_hugging_face(FreeTransformer(c, vocabulary))
    model.set_attn_implementation("sdpa")
    model.config.use_cache = False
    if compile_blocks:
        compiled(model.model.layers)

    def loss(tokens: Tensor) -> Tensor:
        logits = model(tokens[:, :-1]).logits
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return model, loss


def products(dtype: torch.dtype, size: int, turns: int, device: str = "cpu") -> float:
    """FLOP/s of the fastest of a few products of two square matrices."""
    a, b = torch.randn(2, size, size, device=device).to(dtype)
    seconds = in_turns({"mm": lambda: [torch.mm(a, b) for _ in range(10)]}, turns)["mm"]
    return 10 * 2 * size**3 / min(seconds)


def held(model: nn.Module) -> int:
    """Bytes of parameters and of AdamW's two moments of each, which are there before a step."""
    return 12 * sum(parameter.numel() for parameter in model.parameters())


def training_work(
    made: tuple[nn.Module, Loss],
    tokens: Tensor,
    half: bool = False,
    steps: int = 1,
    accumulate: int = 1,
) -> Work:
    """Steps on ``tokens`` (B, T + 1), bf16 autocast if ``half``; a micro-batch is all of them."""
    model, loss = made
    model.train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def work() -> None:
        for _ in range(steps):
            for _ in range(accumulate):
                with torch.autocast(tokens.device.type, torch.bfloat16) if half else nullcontext():
                    value = loss(tokens)
                value.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return work
