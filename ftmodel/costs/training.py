"""Costs of training, from a model's shape alone: parameters, FLOPs, bytes of memory.

Shapes: B = ``batch`` sequences of T = ``context`` tokens, D width, V vocabulary, H latent bits.
"""

from dataclasses import asdict, dataclass, replace

from ftmodel.config import ModelConfig
from ftmodel.costs.counting import MANY_SEQUENCES, loss_bytes, sizes, step_bytes, step_flops


@dataclass
class Parameters:
    total: int
    table: int  # included in total: the post-sampler's (2^H, D)


def parameters(config: ModelConfig, vocab_size: int) -> Parameters:
    """Count parameters; raises ValueError as FreeTransformer does."""
    total, _, table = sizes(config, vocab_size)
    return Parameters(int(total), int(table))


@dataclass
class Flops:
    """Floating-point operations of a token's forward and backward pass, by part of the model.

    Matrix products only, a multiply-add counting as two operations; the backward pass of a product
    costs twice its forward pass. Recomputation is not counted (fused kernels compute attention's
    scores again in the backward pass).
    """

    decoder: float  # blocks and read-out
    encoder: float  # its blocks, over all T positions, its read-out, and a learned prior's
    mapper: float  # from logits to r: the gradient over all 2^H codes, or a linear map

    @property
    def total(self) -> float:
        return sum(asdict(self).values())


def flops_per_token(config: ModelConfig, vocab_size: int) -> Flops:
    """FLOPs of training, per token, at full context. A causal block reads (T + 1) / 2 positions on
    average; with attention within documents it reads fewer, so this is an upper bound.
    """
    t = config.context
    products, attention, encoder, rest = step_flops(config, vocab_size) / (MANY_SEQUENCES * t)
    # in a baseline only the read-out is outside modules
    *_, readout = step_flops(replace(config, latent_bits=0), vocab_size) / (MANY_SEQUENCES * t)
    causal = attention * (t + 1) / (2 * t)
    return Flops(products + causal + readout, encoder, rest - readout)


@dataclass
class Memory:
    """Peak bytes of one GPU: while the loss is computed, or just after, when the backward pass
    enters the last block.

    Not counted: the blocks of codes of the mapper's backward pass (mapper.py, at most 256 MB, which
    shows in small models of many bits), fragmentation, libraries' buffers, the CUDA context.
    """

    parameters: float  # float32
    gradients: float  # float32
    optimizer: float  # AdamW's two moments, float32
    gathered: float  # unsharded copies that a sharded model holds for a moment
    weight_copies: float  # bf16 copies of the matrices, which autograd keeps
    activations: float  # that autograd keeps; with activation checkpointing, inputs of blocks
    loss: float  # gradients of the read-out; logits of a chunk, or what a block holds, if more

    @property
    def total(self) -> float:
        return sum(asdict(self).values())


def memory(
    config: ModelConfig,
    vocab_size: int,
    batch: int,
    half: bool,
    workers: int = 1,
    sharded: bool = False,
    activation_checkpointing: bool = False,
    device: str = "cuda",
) -> Memory:
    """Memory of each of ``workers`` GPUs that processes ``batch`` sequences at a time, in bf16
    where autocast allows it if ``half``.

    Replicas (DDP) hold everything, and gradients twice: once more in the buckets that reduce them.
    Sharded models (FSDP) hold 1 / workers of parameters, gradients and moments. Unsharded in
    float32 they hold one block with its gradient, the next one prefetched, and the parameters
    outside blocks (embeddings, read-out, post-sampler) with their gradients.

    With activation checkpointing the sum is an upper bound: autocast drops its copies of weights
    when the forward pass ends.
    """
    total, block, _ = map(int, sizes(config, vocab_size))
    rest = total - block * (config.n_layers + config.n_encoder_blocks)
    share = workers if sharded else 1
    step = (vocab_size, batch, half, activation_checkpointing, device)
    kept, copies = step_bytes(config, *step)
    one_block = replace(config, n_layers=1, latent_bits=0, latent_block=None)
    kept_by_loss, loss = loss_bytes(one_block, *step)
    return Memory(
        parameters=4 * total / share,
        gradients=4 * total / share * (2 if workers > share else 1),
        optimizer=8 * total / share,
        gathered=4 * (2 * rest + 3 * block) if sharded else 0,
        weight_copies=copies,
        activations=kept - kept_by_loss,
        loss=loss,
    )


def utilisation(tokens_per_second: float, flops: Flops, peak: float) -> float:
    """Model FLOPs utilisation of a GPU with ``peak`` FLOP/s, 0 … 1: PaLM (Chowdhery et al. 2022,
    arXiv 2204.02311), appendix B, but causal attention counts only the keys that are read.
    """
    return tokens_per_second * flops.total / peak
