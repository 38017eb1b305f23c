"""Adapters of tiny models, and a sandbox that runs nothing."""

import sys
from types import SimpleNamespace

import pytest
from datasets import Dataset, DatasetDict

from pipelines.suite import benchmark_data, sandbox, task_index
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


@pytest.fixture
def given(monkeypatch):
    """Factory: from now on every dataset has these splits, each a list of documents."""

    def give(**splits):
        data = DatasetDict({name: Dataset.from_list(docs) for name, docs in splits.items()})
        asked = []
        monkeypatch.setattr(benchmark_data, "load", lambda *what: asked.append(what) or data)
        return asked

    return give


@pytest.fixture
def own_tasks(monkeypatch, tmp_path):
    """Factory: tasks/ has these files, a module utils.py, and no others; the harness has none."""

    def write(utils="", **contents):
        folder = tmp_path / "tasks"
        folder.mkdir(exist_ok=True)
        (folder / "utils.py").write_text(utils)
        for name, content in contents.items():
            (folder / f"{name}.yaml").write_text(content)
        monkeypatch.setattr(task_index, "OURS", folder)
        monkeypatch.setattr(task_index, "FOLDERS", ())
        task_index.manager.cache_clear()
        return folder

    yield write
    task_index.manager.cache_clear()
