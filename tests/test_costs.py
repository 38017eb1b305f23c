"""Counted FLOPs and bytes against what torch itself counts on small models."""

from dataclasses import replace

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import peak_bytes
from ftmodel.costs import (
    dense_mapper_flops,
    elements,
    flops_per_token,
    kept_activations,
    linear_elements,
    memory,
    meta_model,
    parameters,
    utilisation,
)
from ftmodel.costs.latent_memory import memory_blocks
from ftmodel.model import layers, objective
from ftmodel.model.config import ModelConfig
from ftmodel.model.layers import Block
from ftmodel.model.objective import training_loss
from ftmodel.model.transformer import FreeTransformer
from tests.support.designs import all_pairs
from tests.support.mutants import rejects

B = 3


@pytest.fixture(autouse=True)
def attention_of_a_gpu(monkeypatch):
    """What is counted is of a GPU; on a CPU attention is trained in float32 under autocast, too."""
    monkeypatch.setattr(layers, "attend", functional.scaled_dot_product_attention)


def shape(**changes):
    small = dict(n_layers=4, d_model=64, n_heads=4, n_kv_heads=2, ffn_width=96, context=32)
    return ModelConfig(**(small | changes))


def new_model(config, vocab_size, checkpointing=False):
    torch.manual_seed(0)
    model = FreeTransformer(config, vocab_size)
    if checkpointing:
        apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    return model


def documents_of(config):
    """Two documents a row, whose boundary is another in each, if attention is within documents."""
    ends = torch.arange(9, 9 + B)[:, None]
    return (torch.arange(config.context) > ends).long() if config.document_mask else None


def loss(config, vocab_size, half=False, checkpointing=False):
    """The training loss of a new model, its graph whole, and that model."""
    model = new_model(config, vocab_size, checkpointing)
    tokens = torch.randint(vocab_size, (B, config.context + 1))
    bits = config.latent_bits
    noise = torch.rand(B, config.context, bits) if bits else None
    documents = documents_of(config)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        total = training_loss(model, tokens[:, :-1], tokens[:, 1:], noise, 0.1, documents).total
    return total, model


QWEN, MASKED = {"head_width": 8, "qk_norm": True}, {"document_mask": True}
SHAPES = [
    {},
    {"tied": False, "n_kv_heads": 4, "head_width": 24},
    MASKED,
    *(
        {"latent_bits": 8, **changes, "latent": design}
        for changes, design in [
            ({"latent_bits": 7, "tied": False}, {}),
            ({"latent_block": 1, "n_layers": 3}, {}),
            ({"n_layers": 3}, {"inject": "embedding"}),
            ({"latent_bits": 32}, {"inject": "kv_all", "map": "linear", "free_bits": "sequence"}),
            (QWEN, {}),
            (QWEN, {"inject": "memory"}),
            (QWEN, {"encoder": "separate", "encoder_layers": 3, "inject": "kv_all"}),
            (MASKED, {"inject": "memory"}),
            (MASKED, {"encoder": "separate"}),
            (MASKED, {"free_bits": "sequence"}),
            *(({}, design) for design in all_pairs()),
        ]
    ),
]


@rejects(
    "costs/latent_memory.py", "2 * config.d_model", "0", "keys and values of memory cost no product"
)
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_flops_are_those_that_torch_counts(changes, monkeypatch):
    """To the last one. torch counts all T² pairs of a causal block, but neither what the fused
    kernels of a CPU nor what products into a buffer do, hence the plain ones; ζ's query, 6 D² a
    pass and not a token, is in its count only.
    """
    monkeypatch.setattr(objective, "linear_cross_entropy", functional.linear_cross_entropy)
    config = shape(**changes)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        loss(config, 101)[0].backward()
    flops = flops_per_token(config, 101)
    t = config.context
    all_pairs = flops.total + flops.attention * (t / ((t + 1) / 2) - 1)
    query = config.d_model * config.n_heads * config.head_channels
    zeta = 6 * query if config.latent_bits and config.latent.encoder == "shared" else 0
    assert B * t * all_pairs + zeta == pytest.approx(counter.get_total_flops(), rel=1e-12)


def normalised_inputs(config, checkpointing=False):
    """Bytes of what RMSNorm keeps on a CPU, where it is no fused kernel, beside what we count."""
    bits, layers = config.latent_bits > 0, 0 if checkpointing else config.n_layers
    of_kv = {"residual": 0, "embedding": 0, "kv_all": config.n_layers - config.lower_blocks}
    shared = config.latent.encoder == "shared"
    encoder = config.n_encoder_blocks * (not checkpointing)
    latent = 1 if checkpointing else 1 + 2 * encoder + of_kv.get(config.latent.inject, 1)
    latent += config.latent.prior != "uniform"
    channels = (2 * layers + 1 + bits * latent) * config.d_model
    if config.qk_norm:
        queries, keys = (config.head_channels * n for n in (config.n_heads, config.n_kv_heads))
        memory = 0 if checkpointing else memory_blocks(config)
        channels += layers * (queries + keys) + encoder * (keys + (not shared) * queries)
        channels += memory * keys
    return channels * 4 * B * config.context


@rejects(
    "costs/training.py",
    "return config.n_layers + config.n_encoder_blocks * (",
    "return config.n_layers + 1 * (",
    "a separate encoder planned as one block",
)
@rejects(
    "costs/training.py",
    "return config.document_mask *",
    "return 0 *",
    "attention within documents without its masks",
)
@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpointed"])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_activations_are_what_autograd_keeps(changes, half, checkpointing):
    """Within 0.1 %, which leaves room for scalars: every storage that the graph of a forward pass
    holds, but for parameters.
    """
    config, vocab_size, kept = shape(**changes), 29, {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        _total, model = loss(config, vocab_size, half, checkpointing)
    for parameter in model.parameters():
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    found = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    readout = 4 * config.d_model * (B * config.context + vocab_size)  # gradients, made already
    multiplied = linear_elements(model) - model.readout.weight.numel()  # its copy is gone again
    if config.latent_bits:
        # float32 whatever autocast says
        multiplied -= linear_elements(model.latent.readout) + linear_elements(model.latent.prior)
    if checkpointing:
        found += 4 * config.context * config.head_channels  # RoPE: hooks do not see it
        found += 4 * config.d_model * B * config.context * memory_blocks(config)  # nor r as memory
        multiplied -= sum(linear_elements(m) for m in model.modules() if isinstance(m, Block))
    copies = 2 * multiplied if half else 0
    counted = kept_activations(config, B, half, checkpointing) + readout
    assert counted + copies + normalised_inputs(config, checkpointing) == pytest.approx(
        found, rel=1e-3
    )


@pytest.mark.parametrize("bits", [0, 8])
def test_the_peak_with_activation_checkpointing_is_what_the_allocator_says(bits):
    """Where the loss is what most is needed for within 1 %; else the gradients within a block, not
    counted, come on top.
    """
    config = shape(latent_bits=bits)
    for vocab_size, low, high in ((4096, 0.99, 1.01), (29, 0.75, 1.0)):
        peak = allocator_peak(config, vocab_size, half=False, checkpointing=True)
        counted = memory(
            config, vocab_size, B, half=False, activation_checkpointing=True, device="cpu"
        )
        passing = counted.activations + counted.loss + normalised_inputs(config, True)
        assert low <= passing / peak <= high


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize("bits", [0, 8])
@pytest.mark.parametrize("vocab_size", [1024, 4096])
def test_the_peak_of_a_step_is_what_the_allocator_says(bits, vocab_size, half):
    """Within 1 %, gradients being there from the step before: the most bytes allocated between the
    start of a forward pass and the end of the backward pass.
    """
    config = shape(latent_bits=bits)
    counted = memory(config, vocab_size, B, half, device="cpu")
    passing = counted.weight_copies + counted.activations + counted.loss
    peak = allocator_peak(config, vocab_size, half)
    assert passing + normalised_inputs(config) == pytest.approx(peak, rel=0.01)


def allocator_peak(config, vocab_size, half, checkpointing=False):
    """Most bytes allocated during a training step, beside parameters and their gradients."""
    model, bits = new_model(config, vocab_size, checkpointing), config.latent_bits
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    tokens = torch.randint(vocab_size, (B, config.context + 1))
    noise = torch.rand(B, config.context, bits) if bits else None

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            total = training_loss(model, tokens[:, :-1], tokens[:, 1:], noise, 0.1).total
        total.backward()

    return peak_bytes(step)


def test_parameters_are_counted_once_when_tied():
    config = shape(latent_bits=8)
    size = parameters(config, 101)
    assert size.total == sum(p.numel() for p in FreeTransformer(config, 101).parameters())
    assert size.table == 256 * 64
    untied = parameters(shape(latent_bits=8, tied=False), 101)
    assert untied.total - size.total == 101 * 64
    assert parameters(shape(), 101).table == 0


def test_workers_divide_what_is_shared_out_and_replicas_nothing():
    config = shape(latent_bits=8)
    alone = memory(config, 101, B, half=True)
    size = parameters(config, 101).total
    assert (alone.parameters, alone.gradients, alone.optimizer) == (4 * size, 4 * size, 8 * size)
    assert alone.gathered == 0
    replica = memory(config, 101, B, half=True, workers=4)
    assert replica.gradients == 2 * alone.gradients  # and once more in buckets
    assert replica.total - alone.total == alone.gradients
    part = memory(config, 101, B, half=True, workers=4, sharded=True)
    assert 4 * part.parameters == alone.parameters
    assert 4 * part.gradients == alone.gradients
    assert 4 * part.optimizer == alone.optimizer
    assert part.activations == alone.activations
    block = elements(meta_model(config, 101).blocks[0])
    whole = 2 * (size - 5 * block) + 3 * block  # with gradients; a block's successor without
    assert part.gathered == 4 * whole


SMALL = ModelConfig(28, 1536, 12, 2, 8960, 4096, latent_bits=16)  # the paper's 1.5 B and 8 B
LARGE = ModelConfig(32, 4096, 32, 8, 14336, 4096, tied=False, latent_bits=16)


@pytest.mark.parametrize(
    ("config", "all_of_it", "block", "exact", "dense"),
    [(SMALL, 1.0537, 0.036, 0.053, 0.098), (LARGE, 1.0403, 0.031, 0.041, 0.065)],
    ids=["1.5B", "8B"],
)
def test_the_latents_share_at_the_papers_sizes(config, all_of_it, block, exact, dense):
    """Beside coarser counts that are in use: the paper's, a block over L blocks, 1 / L; and one
    that leaves attention's pairs of positions out, adds the read-out, and takes the encoder for a
    whole block, with ζ's query at every token.
    """
    flops = flops_per_token(config, 1 << 17)
    plain = flops_per_token(replace(config, latent_bits=0), 1 << 17)
    assert flops.total / plain.total == pytest.approx(all_of_it, abs=5e-5)
    assert (plain.encoder, plain.mapper) == (0, 0)
    one = flops.blocks / config.n_layers
    baseline = flops.blocks + flops.readout
    product = 2 * config.d_model * (1 << config.latent_bits)
    assert one / flops.blocks == pytest.approx(block, abs=5e-4)
    assert (one + product) / baseline == pytest.approx(exact, abs=5e-4)
    assert (one + dense_mapper_flops(config)) / baseline == pytest.approx(dense, abs=5e-4)


@pytest.mark.parametrize(
    ("config", "tokens", "gpus", "hours", "expected"),
    [(SMALL, 47e9, 32, 12, 0.348), (LARGE, 200e9, 256, 24, 0.442)],
    ids=["1.5B", "8B"],
)
def test_utilisation_that_the_papers_times_imply(config, tokens, gpus, hours, expected):
    """Of an H100's peak in dense bf16 products, 989e12 FLOP/s."""
    speed = tokens / gpus / (hours * 3600)
    flops = flops_per_token(replace(config, latent_bits=0), 1 << 17)
    assert utilisation(speed, flops, 989e12) == pytest.approx(expected, abs=5e-4)
