"""FLOPs and bytes that are counted without storage, against those of real small models, and
against formulas.
"""

from dataclasses import replace
from inspect import unwrap
from unittest.mock import patch

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ftmodel.config import ModelConfig
from ftmodel.costs.counting import LiveBytes, elements, fused_norm, sizes, step_bytes, step_flops
from ftmodel.costs.training import Flops, flops_per_token, memory, parameters, utilisation
from ftmodel.layers import use_kernels
from ftmodel.model import objective
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss
from perf.measure import peak_bytes
from pipelines.config.schema import Compute
from pipelines.train.core.acceleration import speed_up
from tests.support.designs import all_pairs
from tests.support.mutants import rejects

B = 3


def shape(**changes):
    small = dict(n_layers=4, d_model=64, n_heads=4, n_kv_heads=2, ffn_width=96, context=32)
    return ModelConfig(**(small | changes))


def new_model(config, vocab_size, checkpointing=False):
    torch.manual_seed(0)
    model = FreeTransformer(config, vocab_size)
    speed_up(model, Compute(compile=False, activation_checkpointing=checkpointing))
    return model


def loss(model, half=False):
    """Of random tokens. With attention within documents each row has two, which end elsewhere."""
    config, places = model.config, torch.arange(model.config.context)
    tokens = torch.randint(len(model.embedding.weight), (B, config.context + 1))
    noise = torch.rand(B, config.context, config.latent_bits) if config.latent_bits else None
    documents = (places > torch.arange(9, 9 + B)[:, None]).long() if config.document_mask else None
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        return training_loss(model, tokens[:, :-1], tokens[:, 1:], noise, 0.1, documents).total


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


def memory_blocks(config):
    """Number of blocks that read memory."""
    return int(config.latent_bits > 0 and config.latent.inject == "memory")


@rejects("counting.step_flops: «loss.backward()→pass» decoder", "the backward pass is not counted")
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_flops_are_those_that_torch_counts(changes):
    """torch counts all T² pairs of a causal block and, which we do not, ζ's query, 6 D² a pass and
    not a token; but neither what fused kernels of a CPU do nor products into a buffer.
    """
    config = shape(**changes)
    with (
        patch.object(objective, "linear_cross_entropy", functional.linear_cross_entropy),
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        loss(new_model(config, 101)).backward()
    t, queries = config.context, config.n_heads * config.head_channels
    zeta = config.latent_bits > 0 and config.latent.encoder == "shared"
    counted = counter.get_total_flops() - zeta * 6 * config.d_model * queries
    unread = (config.n_layers + memory_blocks(config)) * 12 * queries * (t - (t + 1) / 2)
    said = B * t * (flops_per_token(config, 101).total + unread)
    assert said == pytest.approx(counted, rel=1e-6)


def test_flops_are_those_of_the_formulas():
    """Six for each weight and token, and 12 Q for each position that a query reads; of the paper's
    latent one block more, over all positions and without the product for ζ's query, the read-out of
    the bits, and the products of the gradient over all codes.
    """
    d, q, k, f, vocabulary, t, bits = 96, 128, 64, 160, 211, 48, 10
    sizes = dict(n_layers=12, d_model=d, n_heads=8, n_kv_heads=4, head_width=16, ffn_width=f)
    config = ModelConfig(**sizes, context=t, latent_bits=bits)
    block = d * q + 2 * d * k + q * d + 3 * d * f
    decoder = 12 * (6 * block + 12 * q * (t + 1) / 2) + 6 * d * vocabulary
    encoder = 6 * (block - d * q) + 12 * q * t + 6 * d * bits
    mapper = 2 * d * 2**bits + 4 * 2**bits + 4 * 5 * 2**5  # two halves of five bits
    plain, free = (flops_per_token(c, vocabulary) for c in (replace(config, latent_bits=0), config))
    assert (plain.decoder, plain.encoder, plain.mapper) == pytest.approx((decoder, 0, 0))
    assert (free.decoder, free.mapper) == pytest.approx((decoder, mapper))
    query = 6 * d * q / (65536 * t)  # of ζ, once for all tokens of so many sequences
    assert free.encoder == pytest.approx(encoder + query, rel=1e-12)
    assert parameters(config, vocabulary).table == d * 2**bits
    assert parameters(replace(config, latent_bits=0), vocabulary).table == 0
    assert utilisation(10.0, Flops(1.0, 2.0, 3.0), 120.0) == 0.5


COUNTS = {
    "parameters": (sizes, ()),
    "FLOPs": (step_flops, ()),
    "bytes": (step_bytes, (B, True, False, "cuda")),
    "bytes, checkpointed": (step_bytes, (B, False, True, "cuda")),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_two_small_models_tell_of_a_large_one(changes, count):
    """Exactly; of one whose halves differ where it is not the embeddings that read z."""
    latent = changes.get("latent", {})
    block = None if latent.get("inject") == "embedding" else 4
    config = shape(**changes | {"n_layers": 8, "latent_block": block})
    counted, settings = COUNTS[count]
    direct = unwrap(counted)(config, 29, *settings)
    assert list(counted(config, 29, *settings)) == list(direct)


def test_the_smallest_model_is_counted_itself():
    config = shape(n_layers=2, latent_bits=8)
    assert list(sizes(config, 29)) == list(unwrap(sizes)(config, 29))


def test_live_bytes_are_those_of_storages_that_operators_have_made():
    """A log-softmax into a buffer of another type converts its input first."""
    layer, x = torch.nn.Linear(3, 5, bias=False), torch.ones(2, 3)
    with LiveBytes(layer) as live:
        assert (live.kept, live.copied, live.most, live.most_copies) == (0, 0, 0, 0)
        y = x * 2
        z = y.t()
        assert (live.kept, live.kept_since(1), live.made, live.most) == (24, 0, 1, 24)
        half = layer.weight.to(torch.bfloat16)
        assert (live.kept, live.copied, live.most) == (24, 30, 54)
        w = y + 1
        del y, z, half
        assert (live.kept, live.copied, live.kept_since(1)) == (24, 0, 24)
        assert (live.most, live.most_copies) == (78, 30)
        p, b = torch.empty(2, 3), w.bfloat16()
        assert (live.kept, live.most) == (60, 78)
        torch.log_softmax(w, 1, out=p)
        assert live.most == 78
        torch.log_softmax(b, 1, dtype=torch.float32, out=p)
        assert live.most == 60 + 24
        live.end()
        _more = torch.zeros(100)
    assert live.most == 84


def test_a_fused_norm_keeps_its_input_and_a_number_for_each_row():
    y = fused_norm(torch.ones(2, 3, 4, requires_grad=True), (4,), torch.ones(4), 1e-5)
    assert [tuple(x.shape) for x in y.grad_fn.saved_tensors] == [(2, 3, 4), (4,), (2, 3, 1)]


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


@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpointed"])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_activations_are_what_autograd_keeps(changes, half, checkpointing):
    """Within 0.1 %, which leaves room for scalars: every storage that the graph of a forward pass
    holds, but for parameters.
    """
    config, vocab_size = shape(**changes), 29
    model = new_model(config, vocab_size, checkpointing)
    found = kept_by(lambda: loss(model, half), model, half)
    if checkpointing:
        found += 4 * config.context * config.head_channels  # RoPE: hooks do not see it
        masks = 2 * config.context + 8  # and the numbers of documents, bytes per token
        found += masks * B * config.context * config.document_mask
    kept, copies = step_bytes(config, vocab_size, B, half, checkpointing, "cuda")
    if half and not checkpointing:  # else all copies are gone again
        kept += copies - 2 * config.d_model * vocab_size  # that of the read-out is
    assert kept + normalised_inputs(config, checkpointing) == pytest.approx(found, rel=1e-3)


@pytest.mark.parametrize(
    ("vocab_size", "half", "checkpointing", "low", "high"),
    [
        (1024, False, False, 0.99, 1.01),
        (4096, True, False, 0.99, 1.01),
        (4096, False, True, 0.99, 1.01),
        (29, False, True, 0.96, 1.0),  # the block that reads z holds a little more than the last
    ],
)
@pytest.mark.parametrize("bits", [0, 8])
def test_the_peak_of_a_step_is_what_the_allocator_says(
    bits, vocab_size, half, checkpointing, low, high
):
    """Gradients being there from the step before: the most bytes allocated between the start of a
    forward pass and the end of the backward pass.
    """
    config = shape(latent_bits=bits)
    model = use_kernels(new_model(config, vocab_size, checkpointing))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    peak = peak_bytes(lambda: loss(model, half).backward())
    counted = memory(
        config, vocab_size, B, half, activation_checkpointing=checkpointing, device="cpu"
    )
    passing = counted.weight_copies + counted.activations + counted.loss
    assert low <= passing / peak <= high


def test_workers_divide_what_is_shared_out_and_replicas_nothing():
    config = shape(latent_bits=8)
    alone = memory(config, 101, B, half=True)
    assert alone == memory(config, 101, B, True, 1, False, activation_checkpointing=False)
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
    block = elements(FreeTransformer(config, 101).blocks[0])
    whole = 2 * (size - 5 * block) + 3 * block  # with gradients; a block's successor without
    assert part.gathered == 4 * whole
