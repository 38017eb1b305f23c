"""Log-likelihoods in float64, against the blocks of examples/free_transformer.py."""

import numpy as np
import pytest
import torch

from ftmodel.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from perf.rounding import arm_rows, in_float64, log_likelihoods
from tests.support.example import example, example_config
from tests.support.hugging_face import to_hugging_face
from tests.support.mutants import rejects


@pytest.fixture
def model():
    torch.manual_seed(3)
    shape = {"n_heads": 4, "n_kv_heads": 2, "ffn_width": 40, "context": 300}
    model = FreeTransformer(ModelConfig(2, 32, latent_bits=0, tied=False, **shape), 50)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return model


@torch.no_grad()
def by_the_example(model, ids):
    """log P of each next token, (T, V), in float64."""
    twin = example.FreeTransformer(example_config(model)).double()
    twin.load_state_dict(model.state_dict(), strict=False)  # it has a latent, too
    x = twin.embedding(torch.tensor([ids]))
    for block in twin.blocks:
        x = block(x, x)
    return twin.readout(twin.norm(x))[0].log_softmax(-1)


@rejects("Rotation.forward: «→angles = angles.float(); »return", "a rotation in float32")
def test_log_likelihoods_are_those_of_the_example_in_float64(model):
    rng = np.random.default_rng(0)
    requests = [(None, rng.integers(50, size=n).tolist(), [4, 7, 7]) for n in (1, 250)]
    expected = []
    for _, prompt, answer in requests:
        log_p = by_the_example(model, [*prompt, *answer])[len(prompt) - 1 : -1]
        expected.append(log_p[range(len(answer)), answer].sum().item())
    found = log_likelihoods(in_float64(to_hugging_face(model)), requests)
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_row_says_how_far_each_is_off():
    lines = arm_rows("piqa", {"ours": [-10.0, -19.5]}, [-10.5, -19.75])
    assert lines == ["| piqa | 2 | 15 | ours | 5.0e-01 | 3.8e-01 | +3.8e-01 | 4.8e-02 |"]
