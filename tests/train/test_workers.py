"""Gradients of two workers that share a batch, under DDP and FSDP, for designs of the latent."""

import os
from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from ftmodel.config import ModelConfig
from ftmodel.designs.hinge import LN2
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import training_loss
from pipelines.config.schema import Compute
from pipelines.train.core.acceleration import blocks_of, shard, speed_up
from tests.support.designs import all_pairs

SMALL = dict(n_layers=4, d_model=16, n_heads=4, n_kv_heads=2, ffn_width=24, context=16)
VOCABULARY = 11
DESIGNS = [{}, *all_pairs()[:5]]  # in which each value of every setting occurs


class WithLoss(torch.nn.Module):
    """So that DDP sees the loss as the output of a forward pass."""

    def __init__(self, model, over_workers=None):
        super().__init__()
        self.model, self.over_workers = model, over_workers

    def forward(self, tokens, noise, documents, kappa):
        return training_loss(
            self.model, tokens[:, :-1], tokens[:, 1:], noise, kappa, documents, self.over_workers
        )


def mean_over_workers(value):
    value = value.clone()
    distributed.all_reduce(value)
    return value / distributed.get_world_size()


def compare(design, seed, mesh, how):
    """Raises AssertionError if a worker's gradient is not that of the whole batch."""
    documented = bool(seed % 2)
    config = ModelConfig(
        **SMALL, latent_bits=5, latent=design, latent_std=0.3, document_mask=documented
    )

    def new():
        torch.manual_seed(seed)
        return FreeTransformer(config, VOCABULARY)

    rng = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (4, 11), generator=rng)
    noise = torch.rand(4, 10, 5, generator=rng)
    documents = torch.tensor([1] * 4 + [2] * 6).expand(4, -1)
    rank = distributed.get_rank()
    model, whole, own = new(), slice(0, 4), slice(2 * rank, 2 * rank + 2)
    reference = WithLoss(new())
    if how == "compiled FSDP":
        speed_up(model, Compute(activation_checkpointing=True, compile=False))
        for block in blocks_of(model):
            block.compile(backend="aot_eager")  # as inductor traces, but nothing to wait for
    if how != "DDP":
        shard(model, mesh)
    assert [*model.state_dict()] == [*reference.model.state_dict()]
    each = WithLoss(model, mean_over_workers)
    each = DistributedDataParallel(each) if how == "DDP" else each

    def loss(module, rows, kappa=0.0):
        return module(tokens[rows], noise[rows], documents[rows] if documented else None, kappa)

    # just below the mean KL, so that the hinge of a mean is open, but not everywhere for one worker
    kappa = 0.99 * loss(reference, whole).kl.item() / LN2
    loss(reference, whole, kappa).total.backward()
    loss(each, own, kappa).total.backward()
    pairs = zip(model.parameters(), reference.model.named_parameters(), strict=True)
    for parameter, (name, expected) in pairs:
        grad = parameter.grad
        assert isinstance(grad, DTensor) == (how != "DDP")
        grad = grad.full_tensor() if isinstance(grad, DTensor) else grad
        torch.testing.assert_close(
            grad, expected.grad, rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{design}, {n}: {m}"
        )


def worker(rank, folder, hows):
    """Writes down what differs: both workers go through all designs, so that none waits."""
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    differences = []
    try:
        mesh = init_device_mesh("cpu", (2,))
        for how in hows:
            designs = DESIGNS[:3] if how == "compiled FSDP" else DESIGNS
            for seed, design in enumerate(designs):
                try:
                    compare(design, seed, mesh, how)
                except AssertionError as difference:
                    differences.append(f"{how}: {difference}")
    finally:
        distributed.destroy_process_group()
    (folder / f"{rank}.txt").write_text("\n".join(differences))


@pytest.mark.parametrize(
    "hows",
    [("DDP", "FSDP"), pytest.param(("compiled FSDP",), marks=pytest.mark.slow)],
    ids=["plain", "checkpointed and compiled"],
)
def test_the_gradient_is_that_of_the_whole_batch(tmp_path: Path, hows, monkeypatch):
    monkeypatch.setitem(os.environ, "GLOO_SOCKET_IFNAME", "lo")
    multiprocessing.spawn(worker, args=(tmp_path, hows), nprocs=2)
    assert [(tmp_path / f"{rank}.txt").read_text() for rank in (0, 1)] == ["", ""]
