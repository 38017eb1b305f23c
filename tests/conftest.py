"""Shared by all tests: one thread, a seeded generator, and tiny models of every shape."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

import ftmodel
from ftmodel.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from tests.support.cluster import two_nodes
from tests.support.workspace import conf, copied, finished, tokenized, warm_python, workspace

__all__ = ["conf", "copied", "finished", "tokenized", "two_nodes", "warm_python", "workspace"]

torch.set_num_threads(1)
for name in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS"):  # no test finds the servers of who runs it
    os.environ.pop(name, None)
os.environ["DVC_NO_ANALYTICS"] = "1"  # of repositories without our .dvc/config: a process a command
settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")

# mutants.py runs these tests on altered copies of the code: import no other
assert Path(ftmodel.__file__).parents[1] == Path(__file__).parents[1], ftmodel.__file__


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests first whose workers are forks of this process: a fork has locks and memory that
    threads of other tests have left in it, and none of these threads.
    """
    forking = {"forked", "two"}
    items.sort(key=lambda item: not forking & {*getattr(item, "fixturenames", ())})


@pytest.fixture
def gpu():
    """The GPU of a test that is marked `gpu`, or what stands in for it in a rehearsal."""
    if named := os.environ.get("GPU_TESTS_ON"):
        return named
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    return "cuda"


@pytest.fixture
def rng():
    """A generator that every test starts with the same seed."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def make_model():
    """Factory of tiny models, by default with a vocabulary of 11; baselines if latent_bits=0.

    Weights are drawn anew at a scale that keeps activations near 1: with the usual std of 0.02 all
    logits would be close to 0, and wrong models close to right ones.
    """

    def make(seed=0, vocab_size=11, **changes):
        shape = dict(n_layers=4, d_model=16, n_heads=4, n_kv_heads=2, ffn_width=24, context=16)
        model = FreeTransformer(ModelConfig(**(shape | dict(latent_bits=3) | changes)), vocab_size)
        rng = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1:  # gains of RMSNorm
                    parameter.uniform_(0.5, 1.5, generator=rng)
                elif name.endswith(("embedding.weight", "zeta", "post_sampler")):
                    parameter.normal_(std=0.5, generator=rng)
                else:
                    parameter.normal_(std=parameter.shape[1] ** -0.5, generator=rng)
        return model

    return make


@pytest.fixture
def make_tokens(rng):
    """Factory of random tokens (rows, length) for the models of make_model."""
    return lambda rows, length: torch.randint(11, (rows, length), generator=rng)
