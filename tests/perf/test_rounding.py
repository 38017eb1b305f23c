"""Log-likelihoods in float64, against a Llama written out in NumPy."""

import numpy as np
import pytest
import torch

from ftmodel.model.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from perf.rounding import arm_rows, in_float64, log_likelihoods
from tests.support.hugging_face import to_hugging_face
from tests.support.mutants import rejects


@pytest.fixture
def llama():
    torch.manual_seed(3)
    shape = {"n_heads": 4, "n_kv_heads": 2, "ffn_width": 40, "context": 300}
    model = FreeTransformer(ModelConfig(2, 32, latent_bits=0, tied=False, **shape), 50)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return to_hugging_face(model)


def rotated(x, theta):
    """x (N, T, E) by angles of its positions, channel j with channel j + E/2."""
    half = x.shape[-1] // 2
    angles = np.outer(np.arange(x.shape[1]), theta ** -(np.arange(half) / half))
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def by_numpy(llama, ids):
    """log P of each next token, (T, V), in float64."""
    c = llama.config
    w = {name: weight.detach().double().numpy() for name, weight in llama.named_parameters()}
    x = w["model.embed_tokens.weight"][ids]

    def norm(x, name):
        return w[name] * x / np.sqrt((x**2).mean(-1, keepdims=True) + c.rms_norm_eps)

    def heads(x, name, n):
        return (x @ w[name].T).reshape(len(ids), n, -1).swapaxes(0, 1)

    for i in range(c.num_hidden_layers):
        at = f"model.layers.{i}"
        read = norm(x, f"{at}.input_layernorm.weight")
        q, k, v = (
            heads(read, f"{at}.self_attn.{which}_proj.weight", n)
            for which, n in (
                ("q", c.num_attention_heads),
                ("k", c.num_key_value_heads),
                ("v", c.num_key_value_heads),
            )
        )
        k, v = (each.repeat(len(q) // len(k), axis=0) for each in (k, v))
        theta = c.rope_parameters["rope_theta"]
        scores = rotated(q, theta) @ rotated(k, theta).swapaxes(1, 2) / np.sqrt(q.shape[-1])
        scores[:, *np.triu_indices(len(ids), 1)] = -np.inf
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        y = scores / scores.sum(-1, keepdims=True) @ v
        x = x + y.swapaxes(0, 1).reshape(len(ids), -1) @ w[f"{at}.self_attn.o_proj.weight"].T
        read = norm(x, f"{at}.post_attention_layernorm.weight")
        gate, up = (read @ w[f"{at}.mlp.{which}_proj.weight"].T for which in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{at}.mlp.down_proj.weight"].T
    logits = norm(x, "model.norm.weight") @ w["lm_head.weight"].T
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


@rejects(
    "return angles.«cos(), angles.sin→float().cos().double(), angles.float().sin().double»()",
    "a reference that rotates in float32",
)
def test_log_likelihoods_are_those_of_numpy(llama):
    rng = np.random.default_rng(0)
    requests = [(None, rng.integers(50, size=n).tolist(), [4, 7, 7]) for n in (1, 250)]
    expected = []
    for _, prompt, answer in requests:
        log_p = by_numpy(llama, [*prompt, *answer])[len(prompt) - 1 : -1]
        expected.append(log_p[range(len(answer)), answer].sum())
    np.testing.assert_allclose(log_likelihoods(in_float64(llama), requests), expected, rtol=1e-12)


def test_a_row_says_how_far_each_is_off():
    lines = arm_rows("piqa", {"ours": [-10.0, -19.5]}, [-10.5, -19.75])
    assert lines == ["| piqa | 2 | 15 | ours | 5.0e-01 | 3.8e-01 | +3.8e-01 | 4.8e-02 |"]
