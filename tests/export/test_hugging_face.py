"""An exported folder in the hands of others: transformers, and lm_eval's own backend."""

import json
import random
from types import SimpleNamespace

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipelines.config.suite import Scoring
from pipelines.export import hugging_face
from pipelines.suite.lm import FreeTransformerLM
from pipelines.tokenize.vocabulary import train_bpe

END = "<|endoftext|>"
CONTEXT = 48
TEXT = """The quick brown fox jumps over the lazy dog. Question: what is the answer?
Answer: the answer is seven. def add(a, b):\n    return a + b\n
Über Größe ist naïve café 東京 → ∀x. Which of these is the larger number? """


@pytest.fixture(scope="module")
def bytes_tokenizer():
    return train_bpe([TEXT.encode()] * 3, 400, END)


QWEN_3 = {"tied": False, "qk_norm": True, "head_width": 12, "norm_eps": 0.3}


@pytest.fixture(params=[{}, {"tied": False}, QWEN_3], ids=["tied", "not tied", "Qwen 3"])
def exported(request, make_model, bytes_tokenizer, tmp_path):
    """Our adapter of a baseline, and the folder that it was exported to."""
    model = make_model(
        latent_bits=0,
        **request.param,
        d_model=32,
        ffn_width=48,
        context=CONTEXT,
        vocab_size=bytes_tokenizer.vocab_size,
    ).eval()
    shards = SimpleNamespace(
        metadata=SimpleNamespace(
            vocab_size=bytes_tokenizer.vocab_size, end_of_text=bytes_tokenizer.end_of_text
        ),
        tokenizer=lambda: Tokenizer.from_str(bytes_tokenizer.tokenizer.to_str()),
    )
    config = hugging_face.configuration(model, shards)
    hugging_face.write(tmp_path, config, model, shards, "# a model\n")
    ours = FreeTransformerLM(
        model,
        bytes_tokenizer,
        torch.device("cpu"),
        scoring=Scoring.marginal,
        samples=1,
        batch_tokens=2000,
        seed=0,
    )
    return ours, tmp_path


def backend(folder, **arguments):
    return HFLM(pretrained=str(folder), batch_size=8, device="cpu", dtype="float32", **arguments)


def requests(kind, arguments):
    return [Instance(kind, {}, args, i) for i, args in enumerate(arguments)]


def some_text(rng, words):
    return " ".join(rng.choices(TEXT.split(), k=words))


@torch.no_grad()
def test_transformers_loads_it_by_itself(exported):
    ours, folder = exported
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    tokens = torch.randint(300, (2, CONTEXT), generator=torch.Generator().manual_seed(0))
    expected = ours.model.logits(ours.model(tokens).hidden)
    assert (theirs(tokens).logits - expected).abs().max() < 1e-4 * expected.std()
    assert theirs.dtype == torch.float32


def test_what_generation_draws_from_is_the_whole_distribution(exported):
    _, folder = exported
    config = AutoModelForCausalLM.from_pretrained(folder).generation_config
    assert (config.do_sample, config.temperature, config.top_k, config.top_p) == (True, 1.0, 0, 1.0)
    assert config.eos_token_id == config.bos_token_id is not None


def test_files_hold_what_other_programs_look_for(exported):
    ours, folder = exported
    config = json.loads((folder / "config.json").read_text())
    family, head_dim = ("Qwen3", 12) if ours.model.config.qk_norm else ("Llama", 8)
    assert config["architectures"] == [f"{family}ForCausalLM"]
    assert config["model_type"] == family.lower() and config["head_dim"] == head_dim
    assert config["eos_token_id"] == ours.eot_token_id
    assert {"model.safetensors", "generation_config.json", "tokenizer.json", "README.md"} <= {
        path.name for path in folder.iterdir()
    }


def test_a_text_begins_with_the_token_of_documents_and_holds_no_other_special_one(exported):
    ours, folder = exported
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text in ("a b", TEXT, f"a{END}b", ""):
        ids = tokenizer(text).input_ids
        assert ids == ours.tok_encode(text)
        assert ids.count(ours.eot_token_id) == 1
        assert tokenizer.decode(ids[1:]) == text


def test_scores_are_those_of_our_harness(exported):
    """Within 1e-4 nats an answer."""
    ours, folder = exported
    rng = random.Random(0)
    pairs = [
        (some_text(rng, rng.choice((1, 3, 8, 20))), " " + some_text(rng, rng.choice((1, 2, 5))))
        for _ in range(100)
    ]
    expected = ours.loglikelihood(requests("loglikelihood", pairs), disable_tqdm=True)
    found = backend(folder).loglikelihood(requests("loglikelihood", pairs), disable_tqdm=True)
    assert [p for p, _ in found] == pytest.approx([p for p, _ in expected], rel=1e-6, abs=1e-4)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]


def test_greedy_continuations_are_those_of_our_harness(exported):
    ours, folder = exported
    rng = random.Random(2)
    settings = {"until": ["e"], "max_gen_toks": 20, "do_sample": False}
    prompts = [(some_text(rng, n), settings) for n in (1, 2, 3, 5, 8, 12)]
    expected = ours.generate_until(requests("generate_until", prompts), disable_tqdm=True)
    found = backend(folder).generate_until(requests("generate_until", prompts), disable_tqdm=True)
    assert found == expected


def test_rolling_likelihoods_are_those_of_our_harness(exported):
    """The backend puts its own token before a text, so that it must not have the tokenizer's."""
    ours, folder = exported
    rng = random.Random(1)
    texts = [(text,) for text in ("a", *(some_text(rng, n) for n in (1, 5, 20, 60)), TEXT)]
    theirs = backend(folder, add_bos_token=False)
    asked = requests("loglikelihood_rolling", texts)
    expected = ours.loglikelihood_rolling(asked, disable_tqdm=True)
    found = theirs.loglikelihood_rolling(asked, disable_tqdm=True)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-4)
