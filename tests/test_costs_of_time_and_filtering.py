"""Bytes and FLOPs of a step on a CPU and of the filtering bound, against what torch counts."""

import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ftmodel.costs import flops_per_token
from ftmodel.costs.filtering import filter_flops
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
from ftmodel.model import objective
from ftmodel.model.config import ModelConfig
from ftmodel.model.objective import training_loss
from ftmodel.model.transformer import FreeTransformer
from tests.support.designs import all_pairs
from tests.support.mutants import rejects

B, VOCABULARY = 3, 101
SMALL = dict(n_layers=4, d_model=64, n_heads=4, n_kv_heads=2, ffn_width=96, context=32)
MEMORY = {"latent_bits": 8, "latent": {"inject": "memory"}}
DESIGNS = [{"latent_bits": 8, "latent": design} for design in ({}, *all_pairs()[:5])]
FILTERED = [each for each in DESIGNS if each["latent"].get("per") != "sequence"]


def batch(config):
    tokens = torch.randint(VOCABULARY, (B, config.context + 1))
    bits = config.latent_bits
    noise = torch.rand(B, config.context, bits) if bits else None
    return tokens[:, :-1], tokens[:, 1:], noise


@pytest.mark.parametrize("changes", [{}, *DESIGNS], ids=str)
def test_bytes_without_storage_are_those_of_a_real_step(changes):
    config = ModelConfig(**SMALL, **changes)
    model, data = FreeTransformer(config, VOCABULARY), batch(config)
    with ElementwiseBytes() as counted:
        training_loss(model, *data, 1.0).total.backward()
    parameters = sum(p.numel() for p in model.parameters())
    assert elementwise_bytes(config, VOCABULARY, B) == counted.total + OPTIMIZER * parameters


@rejects("costs/time.py", "not operator.is_view and ", "", "views count as bytes that are moved")
def test_an_operator_reads_and_writes_its_tensors_and_products_and_views_do_not_count():
    x, w = torch.randn(4, 5), torch.randn(5, 5)
    with ElementwiseBytes() as counted:
        y = (x @ w).unflatten(0, (2, 2)).transpose(0, 1)[:, 1]
        assert counted.total == 0
        y = y * 2 + 1
    assert counted.total == 4 * y.nbytes


@rejects(
    "costs/time.py", "pairs = 14 *", "pairs = 12 *", "attention's backward pass keeps its scores"
)
@pytest.mark.parametrize(
    "changes",
    [{"latent_bits": 0}, MEMORY, {"latent_bits": 8, "latent": {"encoder": "separate"}}],
    ids=str,
)
def test_products_are_those_that_torch_counts_and_the_scores_once_more(changes, monkeypatch):
    """To the last one, but for ζ's query, which is not a token's."""
    monkeypatch.setattr(objective, "linear_cross_entropy", functional.linear_cross_entropy)
    config = ModelConfig(**SMALL, **changes, head_width=24)
    model, data = FreeTransformer(config, VOCABULARY), batch(config)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        training_loss(model, *data, 1.0).total.backward()
    blocks = config.n_layers + config.n_encoder_blocks + (changes is MEMORY)
    queries = config.n_heads * config.head_channels
    again = blocks * 2 * queries * config.context * B * config.context
    zeta = 6 * config.d_model * queries if "latent.zeta" in model.state_dict() else 0
    counted = counter.get_total_flops() + again - zeta
    assert step_work(config, VOCABULARY, B).products == pytest.approx(counted, rel=1e-12)


@rejects(
    "costs/time.py",
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
    "costs/filtering.py",
    "model.blocks[lower:]) + linear_elements(model.readout)",
    "model.blocks[lower:])",
    "the filter reads out once for all particles",
)
@pytest.mark.parametrize("changes", FILTERED, ids=str)
def test_flops_of_the_filter_are_those_that_torch_counts(changes):
    """Of a model in float64, which the plain decoder runs. The lower half's causal blocks go
    through all T² pairs.
    """
    config, particles = ModelConfig(**SMALL | {"context": 12}, **changes), 4
    model = FreeTransformer(config, VOCABULARY).double().eval()
    inputs, targets, noise = batch(config)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        filtering_bound(model, inputs, targets, particles, lambda: torch.rand(noise.shape))
    t = config.context
    more = B * t * config.lower_blocks * 4 * config.d_model * (t - (t + 1) / 2)
    counted = filter_flops(config, VOCABULARY, B, particles) + more
    assert counted == pytest.approx(counter.get_total_flops(), rel=1e-12)
    assert counted < flops_per_token(config, VOCABULARY).total * B * t * particles
