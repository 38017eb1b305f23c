"""Costs of training, from a model's shape alone: parameters, FLOPs, bytes of memory.

Sizes of matrices are those of the model itself, built without storage on the "meta" device; the
rest (attention, the mapper's backward pass, what autograd keeps) are formulas.

Shapes: B sequences, T = ``context`` tokens each, D width, F width of SwiGLU, Q width of all queries
together, K of all keys, L blocks, V vocabulary, H latent bits.
"""

from dataclasses import asdict, dataclass

import torch
from torch import nn

from ftmodel.costs.latent_memory import memory_blocks, memory_mask, memory_projection
from ftmodel.designs.design import STREAM, Encoder, FreeBits, Gradient, Inject, Map, Per, Prior
from ftmodel.kernels.cross_entropy import chunk_rows
from ftmodel.model.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer

PRIOR_INPUTS = {Prior.uniform: 0, Prior.learned: 1, Prior.recurrent: 2}  # of width D each


def meta_model(config: ModelConfig, vocab_size: int) -> FreeTransformer:
    """The model without storage; raises ValueError as FreeTransformer does."""
    with torch.device("meta"):
        return FreeTransformer(config, vocab_size)


def elements(module: nn.Module | None) -> int:
    return sum(p.numel() for p in module.parameters()) if module else 0


def linear_elements(module: nn.Module | None) -> int:
    """Elements of the matrices that a forward pass multiplies with; a tied embedding counts as
    read-out, since looking up an embedding multiplies nothing.
    """
    if module is None:
        return 0
    return sum(m.weight.numel() for m in module.modules() if isinstance(m, nn.Linear))


@dataclass
class Parameters:
    total: int
    table: int  # included in total: the post-sampler's (2^H, D)


def parameters(config: ModelConfig, vocab_size: int) -> Parameters:
    model = meta_model(config, vocab_size)
    return Parameters(elements(model), model.latent.post_sampler.numel() if model.latent else 0)


@dataclass
class Flops:
    """Floating-point operations of a token's forward and backward pass, by part of the model.

    Matrix products only, a multiply-add counting as two operations; the backward pass of a product
    costs twice its forward pass. Recomputation is not counted (fused kernels compute attention's
    scores again in the backward pass).
    """

    blocks: float  # 6 × elements of their matrices, one that reads memory projecting it, too
    attention: float  # scores and weighted sums over (T + 1) / 2 positions on average
    readout: float  # 6 D V
    encoder: float  # its blocks, over all T positions, its read-out, and that of a learned prior
    # g = W ρ over all 2^H codes, then Σ_d g_d G_d (U_h(d) − p_h); of a linear map three products
    mapper: float

    @property
    def total(self) -> float:
        return sum(asdict(self).values())


def flops_per_token(config: ModelConfig, vocab_size: int) -> Flops:
    """FLOPs of training, per token, at full context.

    Attention: 4 Q per key and query in the forward pass (2 Q for the scores, 2 Q for the sum of
    values), three times that with the backward pass; a causal block reads (T + 1) / 2 keys on
    average, twice as many with r as memory, the encoder T. With attention within documents there
    are fewer, and this is an upper bound. ζ's query is the same for all tokens and costs nothing
    per token; a separate encoder has a query for each.
    Mapper: 2 D 2^H, in the backward pass only, and its sums over each half of the bits; a linear
    map 6 D H; a table whose gradient is of the sampled code alone has no product.
    """
    model = meta_model(config, vocab_size)
    d, t, codes = config.d_model, config.context, 1 << config.latent_bits
    q = config.head_channels * config.n_heads
    encoder = mapper = 0
    if model.latent:
        once = d * q if config.latent.encoder == Encoder.shared else 0  # elements of ζ's query
        encoder = 6 * (linear_elements(model.latent) - once) + 12 * q * t * config.n_encoder_blocks
        low = config.latent_bits // 2
        high = config.latent_bits - low
        if config.latent.map == Map.linear:
            mapper = 6 * d * config.latent_bits
        elif config.latent.gradient == Gradient.all_codes:
            mapper = 2 * d * codes + 4 * codes + 2 * (low << low) + 2 * (high << high)
    return Flops(
        blocks=6 * (linear_elements(model.blocks) + memory_projection(config)),
        attention=12 * q * (config.n_layers + memory_blocks(config)) * (t + 1) / 2,
        readout=6 * linear_elements(model.readout),
        encoder=encoder,
        mapper=mapper,
    )


def dense_mapper_flops(config: ModelConfig) -> int:
    """Cost per token of the mapper as printed in the paper: a one-hot vector of length 2^H times
    the table, forward (2 D 2^H) and backward (twice that).
    """
    return 6 * config.d_model * (1 << config.latent_bits) if config.latent_bits else 0


@dataclass
class Memory:
    """Peak bytes of one GPU: while the loss is computed, or just after, when the backward pass
    enters the last block.

    Not counted: the blocks of codes of the mapper's backward pass (mapper.py, at most 64 MB, which
    shows in small models of many bits), fragmentation, libraries' buffers, the CUDA context.
    """

    parameters: float  # float32
    gradients: float  # float32
    optimizer: float  # AdamW's two moments, float32
    gathered: float  # unsharded copies that a sharded model holds for the moment
    weight_copies: float  # bf16 copies of the matrices, which autograd keeps
    activations: float  # with activation checkpointing, one block's are recomputed
    loss: float  # gradients of the read-out; logits of a chunk, or a block's gradients, if more

    @property
    def total(self) -> float:
        return sum(asdict(self).values())


@dataclass
class Activations:
    """Bytes per token that autograd keeps for each part of a model.

    Of a block: the residual stream before each norm (float32) and the norm's 1 / rms; the input of
    each matrix; q, k and v after RoPE, with ``qk_norm`` also q and k before it (float32);
    attention's result and, per head, its log-sum-exp; SwiGLU's gate, up, silu(gate) and their
    product. RMSNorm and attention are taken to be fused kernels, as on a GPU; on a CPU, RMSNorm
    keeps its normalised input as well, 4 bytes a channel and token.
    """

    block: int
    reader: int  # in addition, for each block that reads z; see ``readers``
    # its block, but for the x that it shares with the reader; 0 of a separate one, see all_blocks
    encoder: int
    # norm and ids at the end; the encoder's read-out, o, two sigmoids of it, z, KL; the prior's
    rest: int


def activations(config: ModelConfig, half: bool) -> Activations:
    """With bf16 autocast if ``half``, else float32."""
    d, f, bits = config.d_model, config.ffn_width, config.latent_bits
    q, k = (config.head_channels * n for n in (config.n_heads, config.n_kv_heads))
    w = 2 if half else 4  # bytes of what enters a matrix product
    norm = 4 * d + 4  # its input and 1 / rms
    ffn = norm + w * d + 4 * w * f
    query_norm = (4 * q + 4 * config.n_heads) * config.qk_norm
    key_norm = (4 * k * half + 4 * config.n_kv_heads) * config.qk_norm  # float32 k is with v
    heads = w * (q + 3 * k) + w * q + 4 * config.n_heads  # q; k, and k with v before RoPE; result
    # autocast makes a copy for the query's matrix and another for that of keys and values
    attention = norm + (2 * w * d if half else w * d) + query_norm + key_norm + heads
    last = norm + 8  # ids
    if not bits:
        return Activations(attention + ffn, 0, 0, last)
    reader = norm + (0 if half else w * d)  # x + r, normalised apart from x
    # ζ's query is no token's; its layout costs a copy
    encoder = (4 + w * d + key_norm + heads + ffn) * (config.latent.encoder == Encoder.shared)
    if config.latent.inject in STREAM:
        reader = 4 * d  # x, which the encoder alone reads
    if config.latent.inject == Inject.memory:  # r, normalised; its k and v, apart from x's
        unturned = ((4 if half else 16) * k + 4 * config.n_kv_heads) * config.qk_norm
        reader = norm + w * d + w * k + unturned
    return Activations(
        block=attention + ffn,
        reader=reader,
        encoder=encoder,
        # its read-out is in float32; a hinge of means keeps no KL_t
        rest=last
        + (norm + 4 * d)
        + 12 * bits
        + (12 if config.latent.free_bits == FreeBits.token else 8)
        + (config.latent.per != Per.token) * 20  # the index of each one's r and KL; sizes of spans
        + (config.latent.free_bits == FreeBits.sequence) * config.document_mask * 20  # likewise
        + (config.latent.prior != Prior.uniform) * (4 + 8 * bits)  # its norm, logits, q
        + 4 * d * PRIOR_INPUTS[config.latent.prior],
    )


def readers(config: ModelConfig) -> int:
    """Blocks with an input of keys and values, or of a shared encoder, of their own."""
    if not config.latent_bits:
        return 0
    if config.latent.inject in STREAM:
        design = config.latent
        return int(design.encoder == Encoder.shared or design.prior != Prior.uniform)
    return config.n_layers - config.lower_blocks if config.latent.inject == Inject.kv_all else 1


def all_blocks(config: ModelConfig) -> int:
    """The decoder's and those of a separate encoder, which keep as much."""
    return config.n_layers + config.n_encoder_blocks * (config.latent.encoder == Encoder.separate)


def document_mask(config: ModelConfig, batch: int, half: bool) -> int:
    """Bytes of the mask (B, T, T) of a block's attention within documents, which each block turns
    into numbers of the queries' type and keeps.
    """
    return config.document_mask * batch * (2 if half else 4) * config.context**2


def kept_activations(
    config: ModelConfig, batch: int, half: bool, activation_checkpointing: bool = False
) -> int:
    """Bytes that autograd keeps for the backward pass of ``batch`` sequences, without those of the
    loss and of copies of weights. With activation checkpointing: the inputs of each block, which
    for one that reads z are x and x + r, or r.
    """
    d, t, a = config.d_model, config.context, activations(config, half)
    blocks, zeta = all_blocks(config), 0
    rope = 4 * t * config.head_channels
    if activation_checkpointing:
        inputs = 4 * d * (blocks + readers(config))
        return batch * t * (inputs + a.rest) + rope
    token = blocks * a.block + readers(config) * a.reader + a.encoder + a.rest
    if a.encoder:  # ζ's query, turned to all positions
        zeta = (2 if half else 4) * t * config.n_heads * config.head_channels
    with_mask = config.n_layers + config.n_encoder_blocks - memory_blocks(config)
    masks = with_mask * document_mask(config, batch, half) + memory_mask(config, batch, half)
    return batch * t * token + rope + zeta + masks


def recomputed_activations(config: ModelConfig, batch: int, half: bool) -> int:
    """Bytes, without its inputs, of the largest block that activation checkpointing recomputes for
    its backward pass.
    """
    d, t, a = config.d_model, config.context, activations(config, half)
    reader = max(0, a.reader - 4 * d)
    mask = document_mask(config, batch, half)
    block = batch * t * (a.block - 4 * d + reader) + max(mask, memory_mask(config, batch, half))
    return max(block, batch * t * a.encoder + mask)


def loss_peak(config: ModelConfig, vocab_size: int, batch: int, half: bool, device: str) -> int:
    """Bytes of the loss: the gradients of the read-out's input and matrix, and the larger of two:
    that input with a chunk's logits and their softmax (float32, autocast or not); or the gradients
    of SwiGLU's gate, up and product.
    """
    d, tokens = config.d_model, batch * config.context
    rows = min(tokens, chunk_rows(vocab_size, device))
    chunk = 8 * rows * vocab_size
    if half:  # logits in bf16 and float32; or the chunk's part of both gradients
        chunk = 2 * rows * vocab_size + max(chunk, chunk // 2 + 2 * d * (2 * rows + vocab_size))
    ffn = 3 * (2 if half else 4) * config.ffn_width * tokens
    return 4 * d * (tokens + vocab_size) + max(4 * d * tokens + chunk, ffn)


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
    """Memory of each of ``workers`` GPUs that processes ``batch`` sequences at a time.

    Replicas (DDP) hold everything, and gradients twice: once more in the buckets that reduce them.
    Sharded models (FSDP) hold 1 / workers of parameters, gradients and moments, and unsharded in
    float32: one block with its gradient and the next one prefetched; with their gradients, the
    parameters of no block (embeddings, read-out, post-sampler).

    With activation checkpointing the sum is an upper bound: autocast drops its copies of weights
    when the forward pass ends. A recomputed block counts only as far as it exceeds the loss, whose
    memory is free by then.
    """
    model = meta_model(config, vocab_size)
    total, block = elements(model), elements(model.blocks[0])
    rest = total - block * (config.n_layers + config.n_encoder_blocks)
    share = workers if sharded else 1
    full = 0  # elements of matrices that are multiplied in float32, autocast or not
    if model.latent:
        full = linear_elements(model.latent.readout) + linear_elements(model.latent.prior)
    loss = loss_peak(config, vocab_size, batch, half, device)
    activation_bytes = kept_activations(config, batch, half, activation_checkpointing)
    if activation_checkpointing:
        activation_bytes += max(0, recomputed_activations(config, batch, half) - loss)
    return Memory(
        parameters=4 * total / share,
        gradients=4 * total / share * (2 if workers > share else 1),
        optimizer=8 * total / share,
        gathered=4 * (2 * rest + 3 * block) if sharded else 0,
        weight_copies=2 * (linear_elements(model) - full) if half else 0,
        activations=activation_bytes,
        loss=loss,
    )


def utilisation(tokens_per_second: float, flops: Flops, peak: float) -> float:
    """Model FLOPs utilisation of one GPU with ``peak`` FLOP/s at ``tokens_per_second``, 0 … 1.

    PaLM (Chowdhery et al. 2022, arXiv 2204.02311), appendix B, but causal attention counts only the
    keys that are read.
    """
    return tokens_per_second * flops.total / peak
