"""Measurements taken alone, of tiny models and on held-out chunks made up."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ftmodel.config import ModelConfig
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts.packing import Chunk
from pipelines.config.data import TextData
from pipelines.config.schema import EvaluationConfig
from pipelines.evaluate import generations
from pipelines.evaluate.measurement import Context

BEGINNINGS = [Chunk(i, 0, np.arange(n)) for i, n in enumerate((17, 4, 17, 17))]


def tiny(latent_bits=3, vocab_size=29, context=65, **shape):
    torch.manual_seed(0)
    config = ModelConfig(2, 16, 2, 1, 32, context, latent_bits=latent_bits, **shape)
    return FreeTransformer(config, vocab_size).eval()


def lively(*arguments, **shape):
    """A tiny model that z and weights change much."""
    model = tiny(*arguments, latent_std=0.3, **shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


def chunk(document, length, seed=0):
    return Chunk(document, seed, np.random.default_rng(seed).integers(11, size=length + 1))


@pytest.fixture
def decided():
    """A model of the target task whose tokens follow from z alone."""
    model = tiny(latent_bits=8, tied=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
        model.embedding.weight.zero_()
        model.readout.weight.mul_(1e6)
    return model


@pytest.fixture
def shards():
    """A token is written as its number."""
    decode = lambda ids: ",".join(map(str, ids))  # noqa: E731
    return SimpleNamespace(tokenizer=lambda: SimpleNamespace(decode=decode))


@pytest.fixture
def measured(monkeypatch, shards):
    """Takes a measurement of a model; returns its result."""

    def measure(measurement, model, chunks=BEGINNINGS, data=None, **settings):
        for each in (sys.modules[measurement.__module__], generations):
            monkeypatch.setattr(each, "held_out", lambda *_: iter(chunks), raising=False)
        context = Context(
            model=model,
            shards=shards,
            data=data or TextData(),
            settings=EvaluationConfig(**{"tokens": 65_536} | settings),
            device=torch.device("cpu"),
        )
        return measurement(context)

    return measure


@pytest.fixture
def noises(monkeypatch):
    """The source of z of every generation, in their order."""
    seen, generate = [], generations.generate

    def record(*arguments, z, **others):
        seen.append(z)
        return generate(*arguments, z=z, **others)

    for module in (generations, generations):
        monkeypatch.setattr(module, "generate", record)
    return seen
