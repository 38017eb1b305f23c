"""Adapters of tiny models, and a sandbox that runs nothing."""

import sys
from types import SimpleNamespace

import pytest

from pipelines.suite import sandbox
from pipelines.tokenize.vocabulary import train_bpe
from tests.support.benchmark_models import CONTEXT, END, TEXT, adapter


@pytest.fixture(scope="session")
def tokenizer():
    return train_bpe([TEXT.encode()] * 3, 400, END)


@pytest.fixture
def make_lm(make_model, tokenizer):
    """Factory of adapters, by default of a new Free Transformer; of a baseline if latent_bits=0, or
    with ``prefix`` random tokens.
    """

    def make(model=None, latent_bits=3, tied=True, prefix=0, **settings):
        if model is None:
            shape = dict(d_model=32, ffn_width=48, context=CONTEXT)
            bits = dict(latent_bits=0 if prefix else latent_bits, random_prefix=prefix, tied=tied)
            model = make_model(vocab_size=tokenizer.vocab_size, **shape, **bits)
        return adapter(model, tokenizer, **settings)

    return make


@pytest.fixture(name="sandbox")
def fake_sandbox(monkeypatch):
    """It remembers programs and passes those that call themselves good."""

    def run_programs(pairs):
        fake.ran += pairs
        passed = ["good" in program for program, _ in pairs]
        return [SimpleNamespace(passed=each, failure="" if each else "time") for each in passed]

    fake = SimpleNamespace(ran=[], run_programs=run_programs, unavailable=lambda: None)
    monkeypatch.setitem(sys.modules, "pipelines.suite.sandbox.run", fake)
    monkeypatch.setattr(sandbox, "run", fake, raising=False)
    return fake
