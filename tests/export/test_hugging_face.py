"""An exported folder in the hands of others: transformers, and lm_eval's own backend."""

import json
import random
from unicodedata import is_normalized

import pytest
import torch
from lm_eval.models.huggingface import HFLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipelines.export import hugging_face
from pipelines.tokenize.vocabulary import train_bpe
from tests.support.benchmark_models import (
    CONTEXT,
    END,
    TEXT,
    adapter,
    continuations,
    log_likelihoods,
    near,
    rolling,
    some_pairs,
    some_text,
)
from tests.support.gguf_files import AWKWARD, CUTS, shards_of, tokenizer_of
from tests.support.mutants import rejects
from tests.support.remote_code import export, modules_in
from tests.support.tokenizers import encode

QWEN_3 = {"tied": False, "qk_norm": True, "head_width": 12, "norm_eps": 0.3}
LLAMA_3 = {"rope_factor": 8.0, "rope_old_context": 16, "rope_theta": 50.0}
shapes = pytest.mark.parametrize(
    "shape", [{}, {"tied": False}, QWEN_3, LLAMA_3], ids=["tied", "not tied", "Qwen 3", "Llama 3.1"]
)


@pytest.fixture(scope="module")
def words():
    return train_bpe([TEXT.encode()] * 3, 400, END)


@pytest.fixture
def make(make_model, words):
    small = dict(d_model=32, ffn_width=48, context=CONTEXT, vocab_size=words.vocab_size)
    return lambda **shape: adapter(make_model(**small, **shape).eval(), words, samples=2)


@pytest.fixture
def exported(make, words, tmp_path):
    """Factory of our adapter of a baseline, and the folder that it was exported to."""

    def write(**shape):
        ours, shards = make(latent_bits=0, **shape), shards_of(words)
        config = hugging_face.configuration(ours.model, shards)
        hugging_face.write(tmp_path, config, ours.model, shards, "# a model\n")
        return ours, tmp_path

    return write


def backend(folder, **arguments):
    return HFLM(pretrained=str(folder), batch_size=8, device="cpu", dtype="float32", **arguments)


@rejects(
    "hugging_face.add_names_of_transformers_4: else «scaling→None»",
    "rope_scaling transformers 4 does not find",
    case="Llama 3.1",
)
@rejects(
    'hugging_face.add_names_of_transformers_4: «tokens→{}»["tokenizer_class"]',
    "a tokenizer of a class that transformers 4 does not have",
    case="tied",
)
@rejects("hugging_face.write_files: «shutil.copymode→»(", "weights for their owner", case="tied")
@shapes
@torch.no_grad()
def test_transformers_loads_it_by_itself(exported, shape):
    """The names of version 4 in its settings say the same as those of 5."""
    ours, folder = exported(**shape)
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    tokens = torch.randint(300, (2, CONTEXT), generator=torch.Generator().manual_seed(0))
    expected = ours.model.logits(ours.model(tokens).hidden)
    assert (theirs(tokens).logits - expected).abs().max() < 1e-4 * expected.std()
    assert theirs.dtype == torch.float32
    drawn = theirs.generation_config  # from the whole distribution
    assert (drawn.do_sample, drawn.temperature, drawn.top_k, drawn.top_p) == (True, 1.0, 0, 1.0)
    assert drawn.eos_token_id == drawn.bos_token_id is not None
    config = json.loads((folder / "config.json").read_text())
    family, head_dim = ("Qwen3", 12) if ours.model.config.qk_norm else ("Llama", 8)
    assert config["architectures"] == [f"{family}ForCausalLM"]
    assert config["model_type"] == family.lower() and config["head_dim"] == head_dim
    assert config["eos_token_id"] == ours.eot_token_id
    assert "rope_theta" not in (config["rope_scaling"] or {})
    rope = (config["rope_scaling"] or {"rope_type": "default"}) | {
        "rope_theta": config["rope_theta"]
    }
    assert rope == config["rope_parameters"] and config["torch_dtype"] == config["dtype"]
    tokens = json.loads((folder / "tokenizer_config.json").read_text())
    assert tokens["tokenizer_class"] == "PreTrainedTokenizerFast"
    (folder / "new").touch()
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1, "as the umask says"
    files = {"model.safetensors", "generation_config.json", "tokenizer.json", "README.md"}
    assert files <= {path.name for path in folder.iterdir()}


def test_a_text_begins_with_the_token_of_documents_and_holds_no_other_special_one(exported):
    ours, folder = exported()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text in ("a b", TEXT, "a , b . it 's", f"a{END}b", ""):
        ids = tokenizer(text).input_ids
        assert ids == ours.tok_encode(text)
        assert ids.count(ours.eot_token_id) == 1
        assert tokenizer.decode(ids[1:]) == text


@pytest.mark.parametrize("end", ["<end of text>", "<x:0>", "$A"])
def test_an_end_of_text_may_mean_something_in_a_template(end, tmp_path):
    words = train_bpe([TEXT.encode()], 280, end)
    hugging_face.tokenizer(shards_of(words), CONTEXT).save_pretrained(tmp_path)
    tokenizer, text = AutoTokenizer.from_pretrained(tmp_path), f"a b{end} c"
    assert tokenizer(text).input_ids == [words.end_of_text, *encode(words, text.encode())]


@rejects('hugging_face.write_files: [special["eos_token_id"], «*ends→»]', "an end left out")
def test_the_ends_of_a_parent_end_a_text(make, words, tmp_path):
    ours, shards = make(), shards_of(words)
    with modules_in(tmp_path / "modules"):
        hugging_face.write_free_transformer(tmp_path, ours.model, shards, "# a model\n", [5, 7])
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True)
    assert theirs.generation_config.eos_token_id == [words.end_of_text, 5, 7]


@pytest.mark.parametrize("style", CUTS)
def test_text_is_cut_as_ours_in_every_family(make_model, tmp_path, style):
    """But what Qwen2's class composes (NFC)."""
    words = tokenizer_of(style)
    for changes in ({}, {"qk_norm": True}, {"qkv_bias": True}):
        model, shards = make_model(latent_bits=0, **changes), shards_of(words)
        if "qkv_bias" in changes and style != "qwen_2":
            with pytest.raises(ValueError, match=r"^qkv_bias: transformers 5 splits the text of "):
                hugging_face.configuration(model, shards)
            continue
        config = hugging_face.configuration(model, shards)
        hugging_face.write(tmp_path, config, model, shards, "# a model\n")
        theirs = AutoTokenizer.from_pretrained(tmp_path)
        for text in AWKWARD:
            if "qkv_bias" not in changes or is_normalized("NFC", text):
                assert theirs(text).input_ids[1:] == encode(words, text.encode()), (changes, text)


@shapes
def test_scores_and_texts_of_the_backend_are_those_of_our_harness(exported, shape):
    """Some answers are the model's own. For rolling likelihoods the backend puts its own token
    before a text, which the tokenizer must not.
    """
    ours, folder = exported(**shape)
    rng = random.Random(0)
    prompts = ["", "The quick brown fox", "Question: what is", "def add(a, b):"]
    made = continuations(ours, prompts, max_gen_toks=1)
    pairs = [(p, text) for p, text in zip(prompts, made, strict=True) if text.isascii() and text]
    pairs += some_pairs(100)
    ours.start_task()
    nats, greedy = zip(*log_likelihoods(ours, pairs), strict=True)
    found = log_likelihoods(backend(folder), pairs)
    assert [p for p, _ in found] == near(nats)
    assert [is_greedy for _, is_greedy in found] == [*greedy] and any(greedy)
    assert ours.truncated > 5 and ours.mc_error == {}
    prompts = [some_text(rng, n) for n in (1, 2, 3, 5, 8, 12)]
    settings = {"until": ["e"], "max_gen_toks": 20, "do_sample": False}
    found = continuations(backend(folder), prompts, **settings)
    assert found == continuations(ours, prompts, **settings)
    texts = ["", "a", *(some_text(rng, n) for n in (1, 5, 20, 60)), TEXT]
    assert rolling(backend(folder, add_bos_token=False), texts) == near(rolling(ours, texts))


def test_a_free_transformers_folder_in_lm_evals_own_backend(make, words, tmp_path):
    """It reads prompt and answer at once: here z says nothing, and scores do not depend on it."""
    ours = make()
    torch.nn.init.zeros_(ours.model.latent.post_sampler)
    folder = export(ours.model, tmp_path / "free", shards_of(words))
    rng = random.Random(0)
    texts = [some_text(rng, n) for n in (1, 2, 3, 5, 8, 12)]
    pairs = [(text, f" {rng.choice(texts)}") for text in texts]
    settings = {"until": ["e"], "max_gen_toks": 8, "do_sample": False}
    with modules_in(tmp_path / "modules"):
        theirs = backend(folder, trust_remote_code=True)
        found = [p for p, _ in log_likelihoods(theirs, pairs)]
        assert found == near([p for p, _ in log_likelihoods(ours, pairs)])
        found = continuations(theirs, texts, **settings)
        assert found == continuations(ours, texts, **settings)
