"""Whole training steps of our model and of public packages: forward, loss, backward, clip, AdamW.

All have the same shape, batch, tokens and optimizer, and the loss that their package trains with.

  ours              either arm
  llama             Hugging Face's LlamaForCausalLM, attention by PyTorch's fused kernel
  litgpt            litgpt's GPT, configured as a Llama
  free-transformer  the package of that name
  x-transformers    its FreeTransformer

The public Free Transformers multiply dense one-hot vectors of length 2^H with their table.
Shapes: B sequences of T tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ftmodel.kernels.install import use_kernels
from ftmodel.model.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss
from perf.measure import Missing, Work, in_turns
from pipelines.train.core.acceleration import blocks_of

Loss = Callable[[Tensor], Tensor]  # of tokens (B, T + 1)
VOCABULARY, BATCH = 8192, 8
SHAPE = ModelConfig(8, 256, 4, 4, 704, context=256)
QUICK = ModelConfig(2, 32, 2, 2, 48, context=16)
KAPPA = 1.0  # bits
IN_A_ROW = 3  # steps of a turn: the first finds caches and allocator as another arm left them
INSTALL = "`make bench` installs it"


def package(name: str) -> Any:
    """Raises Missing if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise Missing(f"{name.partition('.')[0]}: {error}; {INSTALL}") from None


def plain_cross_entropy(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def compiled(blocks: Sequence[nn.Module]) -> None:
    """Each on its own, as stage train does it."""
    torch._dynamo.config.recompile_limit = 64  # arms share the code of a block, and its limit of 8
    for block in blocks:
        block.compile()


def ours(c: ModelConfig, vocabulary: int, compile_blocks: bool = False) -> tuple[nn.Module, Loss]:
    model = use_kernels(FreeTransformer(c, vocabulary))
    if compile_blocks:
        compiled(blocks_of(model))

    def loss(tokens: Tensor) -> Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        noise = None
        if c.latent_bits:
            noise = torch.rand(*inputs.shape, c.latent_bits, device=tokens.device)
        return training_loss(model, inputs, targets, noise, KAPPA).total

    return model, loss


def llama(c: ModelConfig, vocabulary: int, compile_blocks: bool = False) -> tuple[nn.Module, Loss]:
    model = package("tests.support.hugging_face").to_hugging_face(FreeTransformer(c, vocabulary))
    model.set_attn_implementation("sdpa")
    model.config.use_cache = False
    if compile_blocks:
        compiled(model.model.layers)
    return model, lambda tokens: plain_cross_entropy(model(tokens[:, :-1]).logits, tokens)


def litgpt(c: ModelConfig, vocabulary: int, compile_blocks: bool = False) -> tuple[nn.Module, Loss]:
    package_of_it = package("litgpt.model")
    config = package_of_it.Config(
        block_size=c.context,
        n_layer=c.n_layers,
        n_embd=c.d_model,
        n_head=c.n_heads,
        n_query_groups=c.n_kv_heads,
        vocab_size=vocabulary,
        padded_vocab_size=vocabulary,
        norm_class_name="RMSNorm",
        parallel_residual=False,
        rotary_percentage=1.0,
        bias=False,
        mlp_class_name="LLaMAMLP",
        intermediate_size=c.ffn_width,
    )
    model = package_of_it.GPT(config)
    if c.tied:
        model.lm_head.weight = model.transformer.wte.weight
    if compile_blocks:
        compiled(model.transformer.h)
    return model, lambda tokens: plain_cross_entropy(model(tokens[:, :-1]), tokens)


def free_transformer(c: ModelConfig, vocabulary: int) -> tuple[nn.Module, Loss]:
    config = package("free_transformer.config").ModelConfig(
        vocab_size=vocabulary,
        hidden_dim=c.d_model,
        num_layers=c.n_layers,
        num_heads=c.n_heads,
        num_kv_heads=c.n_kv_heads,
        ffn_hidden_dim=c.ffn_width,
        max_seq_len=c.context,
        latent_dim=c.latent_bits,
    )
    model = package("free_transformer.model").FreeTransformer(config)
    kl = package("free_transformer.losses").compute_kl_divergence

    def loss(tokens: Tensor) -> Tensor:
        logits, z_logits, *_ = model(tokens[:, :-1])
        return plain_cross_entropy(logits, tokens) + kl(z_logits, c.latent_bits)

    return model, loss


def x_transformers(c: ModelConfig, vocabulary: int) -> tuple[nn.Module, Loss]:
    model = package("x_transformers.free_transformer").FreeTransformer(
        num_tokens=vocabulary,
        dim=c.d_model,
        dec_head_depth=c.n_layers // 2,
        dec_tail_depth=c.n_layers - c.n_layers // 2,
        max_seq_len=c.context,
        attn_dim_head=c.d_model // c.n_heads,
        heads=c.n_heads,
        latent_bits=c.latent_bits,
        attn_flash=True,
        ff_glu=True,
        ff_swish=True,
        ff_no_bias=True,
        ff_mult=c.ffn_width / c.d_model,
    )
    return model, model


def products(dtype: torch.dtype, size: int, turns: int, device: str = "cpu") -> float:
    """FLOP/s of the fastest of a few products of two square matrices."""
    a, b = torch.randn(2, size, size, device=device).to(dtype)
    seconds = in_turns({"mm": lambda: [torch.mm(a, b) for _ in range(10)]}, turns)["mm"]
    return 10 * 2 * size**3 / min(seconds)


PUBLIC = {"free-transformer": free_transformer, "x-transformers": x_transformers}


def held(model: nn.Module) -> int:
    """Bytes of parameters and of AdamW's two moments of each, which are there before a step."""
    return 12 * sum(parameter.numel() for parameter in model.parameters())


def step(
    made: tuple[nn.Module, Loss],
    tokens: Tensor,
    half: bool = False,
    steps: int = 1,
    accumulate: int = 1,
) -> Work:
    """Training steps on ``tokens`` (B, T + 1), under bf16 autocast if ``half``; each of as many
    micro-batches, which are all these tokens.
    """
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
