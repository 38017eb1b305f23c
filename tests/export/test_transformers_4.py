"""Exported folders as the last transformers 4 reads them, in an environment of its own."""

import os
import subprocess
import sys

import pytest
import torch
import transformers

from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import FromPrior, Noise
from pipelines.export import hugging_face
from pipelines.export.build import TESTED
from tests.support.gguf_files import AWKWARD, CONTEXT, shards_of, tokenizer_of
from tests.support.remote_code import documented_example, export

PACKAGES = (f"transformers=={TESTED[0]}", "tokenizers==0.22.2", "huggingface_hub==0.36.2")
NEW = 6
READER = """
import sys, torch, transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

assert transformers.__version__.startswith("4."), transformers.__version__
for folder in sys.argv[1:]:
    given = torch.load(f"{folder}/given.pt")
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    tokens, noise, mask = given["tokens"], given["noise"], given["mask"]
    logits = model(tokens, **noise).logits
    greedy = model.generate(
        tokens, attention_mask=mask, do_sample=False, max_new_tokens=NEW, **noise
    )
    ids = [tokenizer(text).input_ids for text in given["texts"]]
    pipe = pipeline("text-generation", model=model, tokenizer=tokenizer)
    temperature = pipe.generation_config.temperature
    found = {"logits": logits, "greedy": greedy, "ids": ids, "temperature": temperature}
    torch.save(found, f"{folder}/found.pt")

exec(open("example.py").read())
model.generate(**prompts, max_new_tokens=9, stop_strings=[" "], tokenizer=tokenizer)
""".replace("NEW", str(NEW))
LLAMA_3 = {"rope_factor": 8.0, "rope_old_context": 16, "tied": False}
BASELINES = {
    "Llama": {"rope_theta": 50.0},
    "Llama 3.1": LLAMA_3,
    "Qwen2": {"rope_theta": 50.0, "qkv_bias": True},
    "Qwen3": {"rope_theta": 50.0, "qk_norm": True, "head_width": 12},
}
FREE = {
    "tied": {"rope_theta": 50.0},
    "not tied": {"tied": False},
    "recurrent": {"latent": {"prior": "recurrent", "inject": "memory"}},
}


@pytest.fixture(scope="session")
def older(request, tmp_path_factory):
    """A folder with transformers 4, which pytest's cache keeps; what else it needs is what is
    installed here.
    """
    cache, name = getattr(request.config, "cache", None), f"transformers-{TESTED[0]}"
    folder = cache.mkdir(name) if cache else tmp_path_factory.mktemp(name)
    if len([*folder.glob("*.dist-info")]) == len(PACKAGES):
        return folder
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(folder), *PACKAGES]
    environment = os.environ | {"PIP_CONSTRAINT": ""}  # ours is of transformers 5
    ran = subprocess.run(pip, env=environment, capture_output=True, text=True)
    if ran.returncode:
        pytest.skip(f"pip: {[*filter(None, ran.stderr.splitlines()), 'failed'][0]}")
    return folder


def test_the_other_version_of_the_cards_is_that_of_these_tests():
    assert transformers.__version__ == TESTED[1]


@pytest.mark.slow
@torch.no_grad()
def test_models_and_tokens_are_ours_and_the_example_of_the_docs_runs(make_model, older, tmp_path):
    words, rng = tokenizer_of("qwen_2"), torch.Generator().manual_seed(0)
    shape = dict(d_model=32, ffn_width=48, context=CONTEXT, vocab_size=words.vocab_size)
    padding, models = torch.tensor([3, 0]), {}
    for name, changes in (BASELINES | FREE).items():
        folder, bits = tmp_path / name, 0 if name in BASELINES else 3
        model = models[name] = make_model(**shape, **changes, latent_bits=bits).eval()
        if bits:
            model.latent.post_sampler.mul_(4)
            export(model, folder, shards_of(words))
        else:
            config = hugging_face.configuration(model, shards_of(words))
            hugging_face.write(folder, config, model, shards_of(words), "# a model\n")
        given = {
            "tokens": torch.randint(900, (2, CONTEXT - NEW), generator=rng),
            "mask": (torch.arange(CONTEXT - NEW) >= padding[:, None]).long(),
            "noise": {"latent_noise": torch.rand(2, CONTEXT, 3, generator=rng)} if bits else {},
            "texts": AWKWARD,
        }
        torch.save(given, folder / "given.pt")
    code, folder = documented_example(tmp_path)
    (tmp_path / "example.py").write_text(code)
    longer = make_model(**shape | {"context": 2 * CONTEXT})
    export(longer, folder, shards_of(words))
    environment = os.environ | {"PYTHONPATH": str(older), "HF_HOME": str(tmp_path / "home")}
    script = [sys.executable, "-c", READER, *(str(tmp_path / name) for name in models)]
    subprocess.run(script, env=environment, cwd=tmp_path, check=True)
    for name, model in models.items():
        given, found = (torch.load(tmp_path / name / f"{x}.pt") for x in ("given", "found"))
        tokens = given["tokens"]
        z = Noise(given["noise"]["latent_noise"]) if model.latent else FromPrior()
        expected = generate(model, tokens, NEW, generator=rng, z=z, temperature=0, padding=padding)
        assert found["greedy"].equal(expected), name
        assert found["temperature"] == 1, name
        if model.latent is None:
            logits = model.logits(model(tokens).hidden)
            assert (found["logits"] - logits).abs().max() < 1e-4 * logits.std(), name
        begin = shards_of(words).metadata.end_of_text
        ids = words.encode_batch([text.encode() for text in AWKWARD])
        assert found["ids"] == [[begin, *each] for each in ids], name
