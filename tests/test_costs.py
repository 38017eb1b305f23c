"""Counted FLOPs and bytes against what torch itself counts on small models."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import peak_bytes
from ftmodel.costs import (
    elements,
    flops_per_token,
    kept_activations,
    linear_elements,
    memory,
    meta_model,
    recomputed_activations,
)
from ftmodel.costs.filtering import filter_flops
from ftmodel.costs.latent_memory import memory_blocks
from ftmodel.costs.time import (
    OPTIMIZER,
    ElementwiseBytes,
    Rates,
    Work,
    elementwise_bytes,
    fit_rates,
    step_work,
)
from ftmodel.inference.filtering import filtering_bound
from ftmodel.model import layers, objective
from ftmodel.model.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.layers import Block
from ftmodel.model.objective import training_loss
from pipelines.config.schema import Compute
from pipelines.train.core.acceleration import speed_up
from tests.support.designs import all_pairs
from tests.support.mutants import rejects

B = 3


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """On a CPU attention is trained in float32 under autocast, too."""
    monkeypatch.setattr(layers, "attend", functional.scaled_dot_product_attention)


@pytest.fixture
def plain_products(monkeypatch):
    """torch counts neither what fused kernels of a CPU do nor products into a buffer."""
    monkeypatch.setattr(objective, "linear_cross_entropy", functional.linear_cross_entropy)
    with sdpa_kernel(SDPBackend.MATH):
        yield


def shape(**changes):
    small = dict(n_layers=4, d_model=64, n_heads=4, n_kv_heads=2, ffn_width=96, context=32)
    return ModelConfig(**(small | changes))


def new_model(config, vocab_size, checkpointing=False):
    torch.manual_seed(0)
    model = FreeTransformer(config, vocab_size)
    speed_up(model, Compute(compile=False, activation_checkpointing=checkpointing))
    return model


def batch(config, vocab_size):
    """Inputs, targets and noise."""
    tokens = torch.randint(vocab_size, (B, config.context + 1))
    bits = config.latent_bits
    return tokens[:, :-1], tokens[:, 1:], torch.rand(B, config.context, bits) if bits else None


def documents_of(config):
    """Two documents a row, whose boundary is another in each, if attention is within documents."""
    ends = torch.arange(9, 9 + B)[:, None]
    return (torch.arange(config.context) > ends).long() if config.document_mask else None


def loss(model, half=False):
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        data = batch(model.config, len(model.embedding.weight))
        return training_loss(model, *data, 0.1, documents_of(model.config)).total


MASKED = {"document_mask": True}
QWEN_3 = {"qk_norm": True, "head_width": 8}
DESIGNS = [{"latent_bits": 8, "latent": design} for design in all_pairs()]
SHAPES = [
    {},
    {"tied": False, "n_kv_heads": 4, "head_width": 24},
    MASKED,
    {"latent": {"inject": "kv_all", "map": "linear"}},  # a baseline has no design
    *(
        {"latent_bits": 8, **changes, "latent": design}
        for changes, design in [
            ({"latent_bits": 7, "tied": False}, {}),
            ({"latent_block": 1, "n_layers": 3}, {}),
            ({"n_layers": 3}, {"inject": "embedding"}),
            ({"latent_bits": 32}, {"inject": "kv_all", "map": "linear", "free_bits": "sequence"}),
            ({"head_width": 24}, {"encoder": "separate", "encoder_layers": 3, "inject": "kv_all"}),
            (MASKED, {"inject": "memory"}),
            (MASKED, {"encoder": "separate"}),
            (MASKED, {"free_bits": "sequence"}),
            (QWEN_3, {"inject": "memory"}),
            (QWEN_3, {"encoder": "separate", "encoder_layers": 3, "inject": "kv_all"}),
        ]
    ),
    *DESIGNS,
]


def zeta_flops(config):
    """Of ζ's query, 6 D² a pass and not a token, which torch counts and we do not."""
    query = config.d_model * config.n_heads * config.head_channels
    return 6 * query if config.latent_bits and config.latent.encoder == "shared" else 0


@rejects("2 * config.d_model", "0", "keys and values of memory cost no product")
@rejects("pairs = 14 *", "pairs = 12 *", "attention's backward pass keeps its scores")
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_flops_are_those_that_torch_counts(changes, as_on_a_gpu, plain_products):
    """To the last one. torch counts all T² pairs of a causal block; on a CPU a step goes through
    them, too, and computes the scores once more.
    """
    config = shape(**changes)
    with FlopCounterMode(display=False) as counter:
        loss(new_model(config, 101)).backward()
    counted = counter.get_total_flops() - zeta_flops(config)
    flops = flops_per_token(config, 101)
    t = config.context
    all_pairs = flops.total + flops.attention * (t / ((t + 1) / 2) - 1)
    assert B * t * all_pairs == pytest.approx(counted, rel=1e-12)
    blocks = config.n_layers + config.n_encoder_blocks + memory_blocks(config)
    again = blocks * 2 * config.n_heads * config.head_channels * t * B * t
    assert step_work(config, 101, B).products == pytest.approx(counted + again, rel=1e-12)


def normalised_inputs(config, checkpointing=False):
    """Bytes of what RMSNorm keeps on a CPU, where it is no fused kernel, beside what we count."""
    bits, layers = config.latent_bits > 0, 0 if checkpointing else config.n_layers
    of_kv = {"residual": 0, "embedding": 0, "kv_all": config.n_layers - config.lower_blocks}
    encoder = config.n_encoder_blocks * (not checkpointing)
    latent = 1 if checkpointing else 1 + 2 * encoder + of_kv.get(config.latent.inject, 1)
    latent += config.latent.prior != "uniform"
    channels = (2 * layers + 1 + bits * latent) * config.d_model
    if config.qk_norm:
        queries, keys = (config.head_channels * n for n in (config.n_heads, config.n_kv_heads))
        separate, memory = config.latent.encoder == "separate", memory_blocks(config)
        channels += layers * (queries + keys) + encoder * (keys + separate * queries)
        channels += 0 if checkpointing else memory * keys
    return channels * 4 * B * config.context


def kept_by(forward, model, half):
    """Bytes of all storages that the graph of ``forward()`` holds, but for parameters."""
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    autocast = torch.autocast("cpu", torch.bfloat16, enabled=half)
    with saved_tensors_hooks(keep, lambda tensor: tensor), autocast:
        _result = forward()
    for parameter in model.parameters():
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@rejects(
    "return config.n_layers + config.n_encoder_blocks * (",
    "return config.n_layers + 1 * (",
    "a separate encoder planned as one block",
)
@rejects(
    "return config.document_mask *", "return 0 *", "attention within documents without its masks"
)
@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpointed"])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_activations_are_what_autograd_keeps(changes, half, checkpointing, as_on_a_gpu):
    """Within 0.1 %, which leaves room for scalars: every storage that the graph of a forward pass
    holds, but for parameters.
    """
    config, vocab_size = shape(**changes), 29
    model = new_model(config, vocab_size, checkpointing)
    found = kept_by(lambda: loss(model, half), model, half)
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


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_a_block_computed_again_keeps_what_is_counted(changes, half, as_on_a_gpu):
    """The block that reads z, or any of a baseline's; within 0.1 %, but for inputs and RoPE."""
    config = shape(**changes)
    model, memories = new_model(config, 29), memory_blocks(config)
    reads = bool(config.latent_bits and config.latent.inject not in ("residual", "embedding"))
    x = torch.randn(B, config.context, config.d_model, requires_grad=True)
    other = torch.randn_like(x, requires_grad=True) if reads else None
    kv, read = (None, other) if memories else (other, None)
    positions = model.positions(0, config.context, x.device, documents_of(config))
    found = kept_by(lambda: model.blocks[0](x, kv, positions, memory=read), model, half)
    known = (3 + 2 * reads) * x.nbytes + positions.rope.nbytes  # RMSNorm keeps more on a CPU
    heads = config.head_channels * (config.n_heads + (1 + memories) * config.n_kv_heads)
    known += 4 * heads * B * config.context if config.qk_norm else 0
    known += 2 * linear_elements(model.blocks[0]) if half else 0
    assert recomputed_activations(config, B, half) + known == pytest.approx(found, rel=1e-3)


@pytest.mark.parametrize(
    ("vocab_size", "half", "checkpointing", "low", "high"),
    [
        (1024, False, False, 0.99, 1.01),
        (4096, True, False, 0.99, 1.01),
        (4096, False, True, 0.99, 1.01),
        (29, False, True, 0.75, 1.0),  # gradients within a block come on top, which we do not count
    ],
)
@pytest.mark.parametrize("bits", [0, 8])
def test_the_peak_of_a_step_is_what_the_allocator_says(
    bits, vocab_size, half, checkpointing, low, high, as_on_a_gpu
):
    """Gradients being there from the step before: the most bytes allocated between the start of a
    forward pass and the end of the backward pass.
    """
    config = shape(latent_bits=bits)
    model = new_model(config, vocab_size, checkpointing)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    peak = peak_bytes(lambda: loss(model, half).backward())
    counted = memory(
        config, vocab_size, B, half, activation_checkpointing=checkpointing, device="cpu"
    )
    passing = counted.weight_copies + counted.activations + counted.loss
    assert low <= (passing + normalised_inputs(config, checkpointing)) / peak <= high


def test_workers_divide_what_is_shared_out_and_replicas_nothing():
    config = shape(latent_bits=8)
    alone = memory(config, 101, B, half=True)
    size = elements(FreeTransformer(config, 101))  # a tied matrix once
    assert (alone.parameters, alone.gradients, alone.optimizer) == (4 * size, 4 * size, 8 * size)
    assert alone.gathered == 0
    replica = memory(config, 101, B, half=True, workers=4)
    assert replica.gradients == 2 * alone.gradients  # and once more in buckets
    assert replica.total - alone.total == alone.gradients
    part = memory(config, 101, B, half=True, workers=4, sharded=True)
    for name in ("parameters", "gradients", "optimizer"):
        assert 4 * getattr(part, name) == getattr(alone, name)
    assert part.activations == alone.activations
    block = elements(meta_model(config, 101).blocks[0])
    whole = 2 * (size - 5 * block) + 3 * block  # with gradients; a block's successor without
    assert part.gathered == 4 * whole


@pytest.mark.parametrize("changes", [{}, {"latent_bits": 8}, *DESIGNS[:5]], ids=str)
def test_bytes_without_storage_are_those_of_a_real_step(changes):
    config = shape(**changes)
    model, data = FreeTransformer(config, 101), batch(config, 101)
    with ElementwiseBytes() as counted:
        training_loss(model, *data, 1.0).total.backward()
    assert elementwise_bytes(config, 101, B) == counted.total + OPTIMIZER * elements(model)


@rejects("not operator.is_view and ", "", "views count as bytes that are moved")
def test_an_operator_reads_and_writes_its_tensors_and_products_and_views_do_not_count():
    x, w = torch.randn(4, 5), torch.randn(5, 5)
    with ElementwiseBytes() as counted:
        y = (x @ w).unflatten(0, (2, 2)).transpose(0, 1)[:, 1]
        assert counted.total == 0
        y = y * 2 + 1
    assert counted.total == 4 * y.nbytes


@rejects(
    "lstsq(relative / scale, torch.ones(len(works), 1, dtype=torch.float64))",
    "lstsq(parts / scale, torch.tensor(seconds, dtype=torch.float64)[:, None])",
    "rates fitted to seconds, which the longest step decides",
)
def test_rates_are_found_again_and_relative_errors_count():
    rates = Rates(products=5e10, elementwise=1e10)
    works = [Work(1e9, 1e6), Work(2e9, 5e9), Work(1e6, 1e7)]
    found = fit_rates(works, [rates.seconds(work) for work in works])
    assert (found.products, found.elementwise) == pytest.approx((5e10, 1e10))
    slow = fit_rates([Work(1.0, 1e-9), Work(1000.0, 1e-9), Work(1.0, 1.0)], [1.0, 2000.0, 1.0])
    # x = 1.2 has the least of (x − 1)² + (x / 2 − 1)²; in seconds the large one alone would count
    assert slow.products == pytest.approx(1 / 1.2)


@rejects(
    "model.blocks[lower:]) + linear_elements(model.readout)",
    "model.blocks[lower:])",
    "the filter reads out once for all particles",
)
@pytest.mark.parametrize("changes", [{"latent_bits": 8}, *DESIGNS[:3], DESIGNS[4]], ids=str)
def test_flops_of_the_filter_are_those_that_torch_counts(changes):
    """Of a model in float64, which the plain decoder runs. The lower half's causal blocks go
    through all T² pairs.
    """
    config, particles, t = shape(**changes, context=12), 4, 12
    model = FreeTransformer(config, 101).double().eval()
    inputs, targets, noise = batch(config, 101)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        filtering_bound(model, inputs, targets, particles, lambda: torch.rand(noise.shape))
    more = B * t * config.lower_blocks * 4 * config.d_model * (t - (t + 1) / 2)
    counted = filter_flops(config, 101, B, particles) + more
    assert counted == pytest.approx(counter.get_total_flops(), rel=1e-12)
    assert counted < flops_per_token(config, 101).total * B * t * particles
