"""A Free Transformer's folder in lm_eval's own backend, which reads prompt and answer at once."""

import random
from types import SimpleNamespace

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers import Tokenizer

from pipelines.config.suite import Scoring
from pipelines.suite.lm import FreeTransformerLM
from pipelines.tokenize.vocabulary import train_bpe
from tests.support.remote_code import export, modules_in

TEXT = "The quick brown fox jumps over the lazy dog. Question: what is the answer? Seven, naïvely."


@pytest.fixture
def backends(make_model, tmp_path):
    """Our adapter of a model whose z says nothing, so that scores do not depend on it, and theirs
    of its folder.
    """
    words = train_bpe([TEXT.encode()] * 3, 330, "<|endoftext|>")
    model = make_model(vocab_size=words.vocab_size, d_model=32, ffn_width=48, context=48).eval()
    torch.nn.init.zeros_(model.latent.post_sampler)
    metadata = SimpleNamespace(vocab_size=words.vocab_size, end_of_text=words.end_of_text)
    text = words.tokenizer.to_str()
    shards = SimpleNamespace(metadata=metadata, tokenizer=lambda: Tokenizer.from_str(text))
    folder = str(export(model, tmp_path / "free", shards))
    settings = {"scoring": Scoring.marginal, "samples": 2, "batch_tokens": 2000, "seed": 0}
    ours = FreeTransformerLM(model, words, torch.device("cpu"), **settings)
    with modules_in(tmp_path / "modules"):
        given = {"batch_size": 4, "device": "cpu", "dtype": "float32", "trust_remote_code": True}
        yield ours, HFLM(pretrained=folder, **given)


def asked(kind, arguments):
    return [Instance(kind, {}, each, i) for i, each in enumerate(arguments)]


def test_it_scores_and_continues_as_our_harness_does(backends):
    rng = random.Random(0)
    texts = [" ".join(rng.choices(TEXT.split(), k=n)) for n in (1, 2, 3, 5, 8, 12)]
    pairs = asked("loglikelihood", [(text, f" {rng.choice(texts)}") for text in texts])
    expected, found = (each.loglikelihood(pairs, disable_tqdm=True) for each in backends)
    assert [p for p, _ in found] == pytest.approx([p for p, _ in expected], rel=1e-6, abs=1e-4)
    settings = {"until": ["e"], "max_gen_toks": 8, "do_sample": False}
    prompts = asked("generate_until", [(text, settings) for text in texts])
    expected, found = (each.generate_until(prompts, disable_tqdm=True) for each in backends)
    assert found == expected
