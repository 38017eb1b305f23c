"""examples/free_transformer.py, which is no part of a package, with the weights of our models."""

from dataclasses import fields
from importlib.util import module_from_spec, spec_from_file_location

import torch

from tests import ROOT

spec = spec_from_file_location("free_transformer", ROOT / "examples/free_transformer.py")
assert spec is not None and spec.loader is not None
example = module_from_spec(spec)
spec.loader.exec_module(example)


def example_config(model):
    ours, width = vars(model.config), model.config.d_model // model.config.n_heads
    given = {"vocab_size": len(model.embedding.weight), "head_width": width} | {
        f.name: ours[f.name] for f in fields(example.Config) if ours.get(f.name) is not None
    }
    return example.Config(**given)


def example_of(model, kind=example.FreeTransformer, *more):
    """The example's model, or one derived from it, in float64 and with the weights of ours."""
    twin = kind(example_config(model), *more).double()
    if model.config.latent_block:
        twin.middle = model.config.latent_block - 1
    twin.load_state_dict(model.state_dict())
    return twin


def assert_same_gradients(model, twin):
    """Of every parameter of either, by name."""
    weights = dict(twin.named_parameters())
    for name, parameter in model.named_parameters():
        expected = weights.pop(name).grad.float()
        torch.testing.assert_close(parameter.grad, expected, atol=1e-5, rtol=1e-4, msg=name)
    assert not weights
