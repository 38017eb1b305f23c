"""A Free Transformer's folder with its own code, as transformers runs it."""

import ast
import json
import re
import sys
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, DynamicCache, StaticCache

import ftmodel
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import Noise, Pinned
from ftmodel.inference.passes import with_codes
from ftmodel.mapper import pack_bits
from pipelines.export.modeling_free_transformer import (
    FreeTransformerForCausalLM,
    left_padding,
    uniform_noise,
)
from tests.support.gguf_files import shards_of, tokenizer_of
from tests.support.mutants import rejects
from tests.support.remote_code import (
    documented_example,
    export,
    load,
    modules_in,
    numbers,
)

NEW = 6


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    with modules_in(tmp_path / "modules"):
        yield


@pytest.fixture
def make_ours(make_model):
    def make(**changes):
        model = make_model(**({"context": 32} | changes)).eval()
        with torch.no_grad():
            model.latent.post_sampler.mul_(4)
        return model

    return make


@pytest.fixture
def ours(make_ours):
    return make_ours()


MEMORY = {"latent": {"inject": "memory"}}
LEARNED, RECURRENT = ({"latent": {"prior": prior}} for prior in ("learned", "recurrent"))


def load_here(folder, **arguments):
    """By the class that our own code has, of which the folder has a copy."""
    return FreeTransformerForCausalLM.from_pretrained(folder, **arguments)


@pytest.fixture
def theirs(ours, tmp_path):
    return load_here(export(ours, tmp_path / "free"))


@pytest.fixture
def prompts(make_tokens):
    """Three prompts (3, 5), of which the first is two tokens long, the second five: tokens, mask
    and padding. What is under the mask is not 0.
    """
    padding = torch.tensor([3, 0, 1])
    mask = (torch.arange(5) >= padding[:, None]).long()
    return make_tokens(3, 5), mask, padding


def greedy(model, tokens, mask=None, **arguments):
    settings = {"do_sample": False, "max_new_tokens": NEW} | arguments
    return model.generate(inputs=tokens, attention_mask=mask, **settings)


def ours_greedy(model, tokens, z, padding=None, n_new=NEW):
    rng = torch.Generator()
    return generate(model, tokens, n_new, generator=rng, z=z, temperature=0, padding=padding)


@rejects("hugging_face.OURS: «ftmodel(?:\\.\\w+)?|→»", "exported code that imports ours")
@rejects('hugging_face.modules: «COPIED.format(copied)→""»', "modules that are not copied")
def test_the_code_is_ours_and_needs_nothing_of_ours(ours, make_tokens, tmp_path, monkeypatch):
    folder = export(ours, tmp_path / "free")
    files = {path.name: path.read_text() for path in folder.glob("*.py")}
    needed = {"modeling_free_transformer.py"}
    for name, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                packages = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level <= 1, name
                packages = set() if node.level else {node.module.partition(".")[0]}
                needed |= {f"{node.module}.py"} if node.level else set()
            else:
                continue
            assert packages <= {"torch", "transformers", *sys.stdlib_module_names}, name
    assert files.keys() == needed
    assert not {"objective.py", "hinge.py", "generate.py"} & needed, "of training, or ours alone"
    adapter = {"configuration_free_transformer.py", "modeling_free_transformer.py"}
    for name in adapter:  # transformers 4 copies what such lines of these two files name
        named = re.findall(r"^from \.(\w+) import$", files[name], re.MULTILINE)
        assert {f"{each}.py" for each in named} == files.keys()
    for name in files.keys() - adapter:
        (source,) = Path(ftmodel.__file__).parent.rglob(name)
        assert files[name] == re.sub(
            r"from ftmodel\.(\w+\.)?(?=\w+ import)", "from .", source.read_text()
        )
    tokens, noise = make_tokens(2, 5), torch.rand(2, 11, 3)
    expected = ours_greedy(ours, tokens, Noise(noise))
    for name in [name for name in sys.modules if name.split(".")[0] in ("ftmodel", "pipelines")]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it is an ImportError
    assert greedy(load(folder), tokens, latent_noise=noise).equal(expected)


@rejects(
    "FreeTransformerForCausalLM.prepare_inputs_for_generation: «tokenizer: object = None,→»",
    "stop_strings refused by an exported model",
)
def test_the_example_of_the_docs_runs_as_written(make_ours, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = tokenizer_of("gpt_2")
    code, folder = documented_example(tmp_path)
    export(make_ours(context=128, vocab_size=words.vocab_size), folder, shards_of(words))
    scope = {}
    exec(code, scope)
    assert len(ast.literal_eval(capsys.readouterr().out)) == 8
    model, tokenizer, prompts = (scope[name] for name in ("model", "tokenizer", "prompts"))
    stopped = None
    with suppress(ValueError):
        stopped = model.generate(
            **prompts, max_new_tokens=9, stop_strings=[*map(chr, range(128))], tokenizer=tokenizer
        )
    assert stopped is not None and stopped.shape[0] == 2


@rejects("FreeTransformerForCausalLM.forward: =«padding→None»", "padding read by an exported model")
@rejects("modeling_free_transformer.uniform_noise: «start:end→:length»", "the first token's noise")
def test_the_same_noise_gives_the_same_greedy_tokens(ours, theirs, prompts, rng):
    """Noise without rows is shared from the first token of each on."""
    tokens, mask, padding = prompts
    noise = torch.rand(3, 5 + NEW, 3, generator=rng)
    expected = ours_greedy(ours, tokens, Noise(noise))
    assert greedy(theirs, tokens, latent_noise=noise).tolist() == expected.tolist()
    assert greedy(theirs, tokens, latent_noise=noise[:, :-1]).tolist() == expected.tolist()
    padded = ours_greedy(ours, tokens, Noise(noise), padding)
    assert greedy(theirs, tokens, mask, latent_noise=noise).tolist() == padded.tolist()
    assert padded[[0, 2]].tolist() != expected[[0, 2]].tolist(), "padding is read"
    shared = torch.rand(5 + NEW, 3, generator=torch.Generator().manual_seed(7))
    pinned = ours_greedy(ours, tokens, Pinned(7), padding)
    assert greedy(theirs, tokens, mask, latent_noise=shared).tolist() == pinned.tolist()


DESIGNS = {
    "two keys a position": MEMORY,
    "in the first layer": MEMORY | {"latent_block": 1},
    "learned": LEARNED,
    "recurrent": RECURRENT,
    "separate": {"latent": {"encoder": "separate", "encoder_layers": 3}},
    "in every block, as Qwen 3": {"latent": {"inject": "kv_all"}, "qk_norm": True, "head_width": 6},
    "in the embedding": {"latent": {"inject": "embedding", "map": "linear"}},
}


@pytest.mark.parametrize("changes", DESIGNS.values(), ids=DESIGNS)
def test_other_designs_give_the_same_greedy_tokens(make_ours, prompts, tmp_path, rng, changes):
    """Their cache, filled by greedy search, and our decoder's."""
    ours = make_ours(**changes)
    theirs = load_here(export(ours, tmp_path / "free"))
    tokens, mask, padding = prompts
    noise = torch.rand(3, 5 + NEW, 3, generator=rng)
    expected = ours_greedy(ours, tokens, Noise(noise), padding)
    assert greedy(theirs, tokens, mask, latent_noise=noise).equal(expected)


def test_shared_noise_and_a_mask_are_counted_from_the_first_token_of_each_row():
    mask = torch.tensor([[0, 0, 0, 1], [1, 1, 1, 1]])
    padding = left_padding(mask, 2, 4)
    assert padding.tolist() == [3, 0]
    noise = torch.arange(12.0).view(6, 2) / 12
    found = uniform_noise(noise, (2, 3, 2), 1, padding, noise.device)  # positions 1, 2 and 3
    assert found[0, 2].equal(noise[0]) and found[1].equal(noise[1:4])


@rejects(
    "modeling_free_transformer.uniform_noise: (size, device=device)«→[:1].expand(size)»",
    "all sequences of an exported model with one z",
)
@rejects(
    "modeling_free_transformer.uniform_noise: «repeat_interleave(rows // len(given), "
    "dim=0)→repeat(rows // len(given), 1, 1)»",
    "noise of a prompt given to sequences of another",
)
def test_sequences_of_a_prompt_have_z_of_their_own_or_shared(ours, theirs, make_tokens, rng):
    """At a temperature near 0 nothing but z tells them apart."""
    tokens = make_tokens(2, 5)
    settings = {"do_sample": True, "temperature": 1e-4, "num_return_sequences": 4}

    def sequences(noise):
        return greedy(theirs, tokens, latent_noise=noise, **settings)

    def expected(noise):
        return ours_greedy(ours, tokens.repeat_interleave(4, 0), Noise(noise))

    torch.manual_seed(0)
    assert all(len(rows.unique(dim=0)) > 1 for rows in sequences(None).view(2, 4, -1))
    for_all = torch.rand(5 + NEW, 3, generator=rng)
    assert sequences(for_all).equal(expected(for_all.expand(8, -1, -1)))
    for_each_prompt = torch.rand(2, 5 + NEW, 3, generator=rng)
    shared = for_each_prompt.repeat_interleave(4, 0)
    assert sequences(for_each_prompt).equal(expected(shared))
    for_each = torch.rand(8, 5 + NEW, 3, generator=rng)
    assert sequences(for_each).equal(expected(for_each))


@rejects("FreeTransformerForCausalLM.forward: , input_ids, noise«→ * 0.8»", "a prior not uniform")
@torch.no_grad()
def test_forward_draws_z_from_the_prior_and_reads_nothing_ahead(ours, theirs, make_tokens, rng):
    tokens, noise = make_tokens(2, 8), torch.rand(2, 8, 3, generator=rng)
    expected = ours.logits(with_codes(ours, tokens, pack_bits(noise < 0.5)).hidden)
    found = theirs(tokens, latent_noise=noise, cache_position=torch.arange(8)).logits
    assert (found - expected).abs().max() < 1e-5 * expected.std()
    other = tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % 11
    for given in (noise, None):
        torch.manual_seed(3)
        a = theirs(tokens, latent_noise=given).logits
        torch.manual_seed(3)
        b = theirs(other, latent_noise=given).logits
        assert a[:, :-1].allclose(b[:, :-1], atol=1e-5), "the encoder has read a later token"
        assert not a[:, -1].allclose(b[:, -1], atol=1e-2)
    drawn = torch.rand(2, 8, 3, generator=torch.Generator().manual_seed(3))
    assert b.equal(theirs(other, latent_noise=drawn).logits)


@rejects(
    "CachedLayer.append: «self.length→_» = keys", "a cache that counts no token", case="recurrent"
)
@pytest.mark.parametrize("changes", [{}, *DESIGNS.values()], ids=["the paper's", *DESIGNS])
@torch.no_grad()
def test_logits_with_a_cache_whole_or_in_pieces_are_those_without(
    make_ours, prompts, make_tokens, tmp_path, rng, changes
):
    theirs = load(export(make_ours(**changes), tmp_path / "free"))
    tokens, mask, _ = prompts
    tokens = torch.cat((tokens, make_tokens(3, 4)), 1)
    mask = torch.cat((mask, mask.new_ones(3, 4)), 1)
    noise = torch.rand(9, 3, generator=rng)
    for padded, ends in product((True, False), ((9,), (5, 9), (5, 6, 9))):
        given = {"latent_noise": noise, "attention_mask": mask if padded else None}
        without = theirs(tokens, **given, use_cache=False).logits
        cache, start = DynamicCache() if ends == (9,) else None, 0
        for end in ends:
            given["attention_mask"] = mask[:, :end] if padded else None
            out = theirs(tokens[:, start:end], **given, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            assert cache.get_seq_length() == end
            real = mask[:, start:end].bool()
            difference = (out.logits - without[:, start:end])[real | (not padded)]
            assert difference.abs().max() < 1e-5 * without.std(), (padded, ends)
            start = end


def test_a_cache_of_generate_can_be_continued(theirs, prompts, rng):
    tokens, mask, _ = prompts
    noise = torch.rand(3, 5 + NEW, 3, generator=rng)
    whole = greedy(theirs, tokens, mask, latent_noise=noise)
    begun = greedy(
        theirs, tokens, mask, latent_noise=noise, max_new_tokens=2, return_dict_in_generate=True
    )
    assert begun.past_key_values.get_seq_length() == 6
    mask = torch.cat((mask, mask.new_ones(3, 2)), 1)
    rest = {"past_key_values": begun.past_key_values, "max_new_tokens": NEW - 2}
    assert greedy(theirs, begun.sequences, mask, latent_noise=noise, **rest).equal(whole)


@rejects(
    'FreeTransformerForCausalLM._tied_weights_keys: «"model.readout.weight": '
    '"model.embedding.weight"→»',
    "a tied read-out that transformers does not know of",
    case="tied",
)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "not tied"])
@torch.no_grad()
def test_saved_again_it_is_the_same(make_ours, make_tokens, tied, tmp_path, rng):
    theirs = load(export(make_ours(tied=tied), tmp_path / "free"))
    tokens, noise = make_tokens(2, 5), torch.rand(2, 5, 3, generator=rng)
    theirs.save_pretrained(tmp_path / "again")
    assert not [*tmp_path.rglob("*.bin"), *tmp_path.rglob("*.pt")]
    again = load(tmp_path / "again")
    assert again(tokens, latent_noise=noise).logits.equal(theirs(tokens, latent_noise=noise).logits)
    assert again.generation_config.top_k == 0 and again.generation_config.do_sample
    assert again.config.tie_word_embeddings == tied
    read_out, embedding = again.get_output_embeddings(), again.get_input_embeddings()
    assert (read_out.weight is embedding.weight) == tied


@rejects(
    'hugging_face.write_free_transformer: dtype=«→"float32" or »',
    "an export in another precision",
)
def test_in_bfloat16(ours, prompts, tmp_path, rng):
    tokens, mask, padding = prompts
    noise = torch.rand(3, 5 + NEW, 3, generator=rng)
    theirs = load(export(ours, tmp_path / "free"), dtype=torch.bfloat16)
    assert theirs.dtype == torch.bfloat16
    expected = ours_greedy(ours.bfloat16(), tokens, Noise(noise), padding)
    assert greedy(theirs, tokens, mask, latent_noise=noise).equal(expected)
    theirs.save_pretrained(tmp_path / "again")
    again = load(tmp_path / "again")
    assert again.dtype == torch.bfloat16, "as its config.json says"
    assert greedy(again, tokens, mask, latent_noise=noise).equal(expected)
    config = json.loads((export(ours, tmp_path / "ours") / "config.json").read_text())
    assert config["dtype"] == "bfloat16"


REFUSED = [
    ("beam search", {"num_beams": 2}),
    ("assisted generation", {"prompt_lookup_num_tokens": 2}),
    ("chunked prefill", {"prefill_chunk_size": 2}),
    ("only DynamicCache works", {"cache_implementation": "static"}),
    ("use_cache=False", {"use_cache": False}),
    *(
        ("right padding", {"attention_mask": torch.tensor([[1] * 5, mask])})
        for mask in ([1, 1, 1, 1, 0], [1, 0, 1, 1, 1], [0, 1, 0, 1, 1], [0] * 5)
    ),
    (r"attention_mask must be \(2, 5\)", {"attention_mask": torch.eye(2, 4)}),
    *(
        ("latent_noise must be", {"latent_noise": torch.rand(shape)})
        for shape in ((9, 2), (3, 9, 3), (2, 6, 3))  # bits, rows, positions
    ),
]


def test_generate_and_forward_refuse_by_name(theirs, make_tokens):
    tokens = make_tokens(2, 5)
    for name, value in (
        ("labels", tokens),
        ("position_ids", tokens),
        ("inputs_embeds", torch.ones(2, 5, 16)),
        ("output_hidden_states", True),
        ("output_attentions", True),
        ("return_dict", False),
    ):
        with pytest.raises(ValueError, match=f"^{name}="):
            theirs(tokens, **{name: value})
    others = dict(output_hidden_states=False, output_attentions=False, inputs_embeds=None)
    assert theirs(tokens, **others, return_dict=True).logits.shape == (2, 5, 11)
    for match, arguments in REFUSED:
        settings = {"do_sample": False, "max_new_tokens": 4} | arguments
        with pytest.raises(ValueError, match=match):
            theirs.generate(tokens, **settings)


def test_caches_that_are_refused_by_name(theirs, make_tokens):
    tokens = make_tokens(2, 5)
    static = StaticCache(config=theirs.config, max_cache_len=9)
    filled = theirs(tokens[:, :4], use_cache=True).past_key_values  # z from the prior
    encoded = theirs.generate(tokens, max_new_tokens=2, return_dict_in_generate=True)
    for call, cache, match in (
        (theirs, static, "only DynamicCache works"),
        (theirs.generate, static, "only DynamicCache works"),
        (theirs.generate, filled, "prefill after a cache"),
        (theirs.generate, encoded.past_key_values, "prefill after a cache"),
    ):
        with pytest.raises(ValueError, match=match):
            call(tokens, past_key_values=cache)
    with pytest.raises(ValueError, match="prefill after a cache"):
        theirs(tokens, past_key_values=filled, encode_prompt=True)
    longer = torch.cat((encoded.sequences, tokens), 1)
    with pytest.raises(ValueError, match="prefill after a cache"):
        theirs.generate(longer, past_key_values=encoded.past_key_values)
    assert theirs.generate(tokens, past_key_values=DynamicCache(), max_new_tokens=2).shape == (2, 7)


def test_other_programs_find_what_they_look_for(ours, tmp_path):
    folder = export(ours, tmp_path / "free", numbers(11, end_of_text=3))
    theirs = load_here(folder)
    config = theirs.config
    assert config._attn_implementation == "sdpa"
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (16, 4, 11)
    assert (config.max_position_embeddings, config.eos_token_id) == (32, 3)
    settings = theirs.generation_config
    assert settings.do_sample and settings.eos_token_id == settings.bos_token_id == 3
    assert (settings.temperature, settings.top_k, settings.top_p) == (1.0, 0, 1.0)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    assert tokenizer.padding_side == "left" and tokenizer("").input_ids == [3]
    assert not list(theirs.named_buffers())


@pytest.mark.parametrize("encoder", ["shared", "separate"])
@torch.no_grad()
def test_weights_made_anew_are_drawn(make_ours, tmp_path, encoder):
    """As by from_config, which is given no weights."""
    theirs = load_here(export(make_ours(latent={"encoder": encoder}), tmp_path / "free"))
    torch.manual_seed(0)
    anew = type(theirs)(theirs.config)
    for parameter in anew.parameters():
        assert parameter.isfinite().all() and parameter.abs().max() < 2
    latent = anew.model.latent
    assert latent.post_sampler.std().item() == pytest.approx(0.02, rel=0.3)
    assert encoder == "separate" or latent.zeta.std().item() == pytest.approx(0.02, rel=0.6)
