"""Our decoder and Hugging Face's Llama give the same logits with each other's weights."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from ftmodel.conversion.llama import (
    decoder_of,
    llama_config,
    llama_weights,
    load_llama,
    our_config,
    rope_parameters,
)
from ftmodel.kernels.cross_entropy import linear_cross_entropy
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.positions import rope_rates
from tests.support.mutants import rejects
from tests.support.passes import given_codes

SHAPES = [
    *({}, {"n_kv_heads": 1, "tied": False}, {"n_layers": 3, "norm_eps": 0.3, "rope_theta": 50.0}),
    {"qkv_bias": True, "n_kv_heads": 1, "tied": False, "rope_theta": 50.0},
    {"rope_theta": 5.0, "rope_factor": 8.0, "rope_old_context": 16, "n_heads": 1, "n_kv_heads": 1},
    *({"head_width": 8, "rope_theta": 50.0}, {"head_width": 6, "qkv_bias": True}),
    {"head_width": 6, "rope_theta": 50.0, "qk_norm": True, "norm_eps": 0.3},
    {"head_width": 8, "n_heads": 3, "n_kv_heads": 1, "qk_norm": True, "tied": False},
    {"qk_norm": True, "n_kv_heads": 4},
]
TINY = dict(
    vocab_size=23,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    max_position_embeddings=16,
    attn_implementation="eager",
)
UP = "model.layers.0.mlp.up_proj.weight"
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 50.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
FAMILIES = {
    "Llama 2": ("llama", {}),
    "Llama 3": ("llama", {"rope_parameters": LLAMA_3}),
    "wide heads": ("llama", {"head_dim": 6}),
    "Qwen 2": ("qwen2", {}),
    "Qwen 3": ("qwen3", {"head_dim": 8}),
    "Qwen 3, narrow heads": ("qwen3", {"head_dim": 2}),
}


def close_to_std(ours, theirs):
    assert theirs.std() > 0.1, "logits this small would compare nothing"
    assert (ours - theirs).abs().max() < 1e-4 * theirs.std()


@pytest.fixture
def tokens(rng):
    return torch.randint(11, (3, 12), generator=rng)


@rejects("llama.block_views: «gate, up→up, gate»", "gate and up exchanged")
@rejects('llama.block_views: «q→k»": attention.query_norm, "«k→q»', "gains of q and k exchanged")
@pytest.mark.parametrize("changes", SHAPES, ids=str)
@torch.no_grad()
def test_hugging_face_computes_what_we_do_with_our_weights(make_model, tokens, changes):
    model = make_model(latent_bits=0, **changes).eval()
    entries = llama_config(model.config, 11)
    model_type = entries.pop("model_type")
    assert ("mlp_bias" in entries) == (model_type == "llama")
    plain = entries["rope_parameters"]["rope_type"] == "default"
    assert plain == ("rope_factor" not in changes)
    config = AutoConfig.for_model(model_type, **entries, attn_implementation="eager")
    theirs = AutoModelForCausalLM.from_config(config)
    missing, unexpected = theirs.load_state_dict(llama_weights(model), strict=False)
    assert unexpected == [] and set(missing) <= {"lm_head.weight"}
    theirs.tie_weights()
    close_to_std(model.logits(model(tokens).hidden), theirs.eval()(tokens).logits)


@rejects(
    "llama.block_views: «in_halves(key_bias, config.n_kv_heads)→key_bias»",
    "key biases in Hugging Face's order",
)
@rejects(
    "Attention.queries: «rotate(self.heads(self.query(q), self.query_norm), "
    "at.rope)→(self.query_norm or (lambda x: x))(rotate(self.heads(self.query(q)), at.rope))»",
    "queries of Qwen turned before they are normalised",
)
@rejects("positions.rope_rates: «width→config.d_model * config.n_heads»)", "heads of width D / N")
@pytest.mark.parametrize(("bits", "tied"), [(0, True), (3, False)], ids=["baseline", "latent"])
@pytest.mark.parametrize(("family", "more"), FAMILIES.values(), ids=FAMILIES)
@torch.no_grad()
def test_we_compute_what_hugging_face_does_with_its_weights(tokens, tied, bits, family, more):
    """A Free Transformer's decoder too, where r is 0."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family, **TINY, **more, tie_word_embeddings=tied, initializer_range=0.3
    )
    theirs = AutoModelForCausalLM.from_config(config).eval()
    for name, parameter in theirs.named_parameters():
        if "norm" in name:
            parameter.uniform_(0.5, 1.5)
        if name.endswith("bias"):
            parameter.normal_(std=0.5)
    ours = decoder_of(theirs.config.to_dict(), theirs.state_dict(), latent_bits=bits).eval()
    codes = None
    if bits:
        ours.latent.post_sampler.zero_()
        codes = torch.zeros_like(tokens)
    close_to_std(ours.logits(given_codes(ours, tokens, codes).hidden), theirs(tokens).logits)


@pytest.mark.parametrize("changes", [{}, {"head_width": 8}, {"qk_norm": True, "head_width": 6}])
def test_a_model_comes_back_from_its_llama(make_model, changes):
    model = make_model(latent_bits=0, tied=False, **changes)
    entries = llama_config(model.config, 11)
    more = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}  # in old files
    del entries["tie_word_embeddings"]  # as in files that leave defaults out
    again = decoder_of(entries, llama_weights(model) | more)
    assert again.config == model.config
    for (name, ours), other in zip(model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, other), name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "qwen3_moe"}, "model_type: 'qwen3_moe'.* qwen2 or qwen3"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window: True"),
        ({"model_type": "qwen3", "attention_bias": True}, "attention_bias: True.* no biases"),
        ({"attention_bias": True}, "attention_bias: True.* no biases"),
        ({"mlp_bias": True}, "mlp_bias: True.* no biases"),
        ({"hidden_act": "gelu"}, "hidden_act: 'gelu'.* silu"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 5e5}}, "rope_type: 'yarn'"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear"}}, "rope_type: 'linear'"),
        ({"head_dim": 5}, "head_width: .* even head width, not 5"),
        ({"head_dim": 0}, "head_width: 0 times n_heads 6 is outside"),
        ({"num_key_value_heads": 4}, "n_kv_heads: 4 does not divide n_heads 6"),
        ({"rope_parameters": "default"}, "^rope_parameters: 'default', expected a mapping"),
        ({"rope_parameters": None, "rope_scaling": "x"}, "^rope_scaling: 'x', expected a mapping"),
        ({"rope_parameters": {"full_attention": 1}}, r"^rope_parameters\.full_attention: 1, unkn"),
        ({"rope_parameters": {"rope_theta": None}}, "^rope_theta: None, expected a number"),
        ({"rope_parameters": None, "rope_theta": None}, "^rope_theta: None, expected a number"),
        ({"rope_parameters": LLAMA_3 | {"factor": "4"}}, "^factor: '4', expected a number"),
        ({"hidden_size": "24"}, "^hidden_size: '24', expected a whole number"),
        ({"num_hidden_layers": True}, "^num_hidden_layers: True, expected a whole number"),
        ({"rms_norm_eps": "1e-6"}, "^rms_norm_eps: '1e-6', expected a number"),
        ({"tie_word_embeddings": "false"}, "^tie_word_embeddings: 'false', expected true or false"),
        ({"head_dim": 4.0}, r"^head_dim: 4\.0, expected a whole number"),
    ],
)
def test_what_our_decoder_does_not_compute_is_refused_by_name(changes, words):
    config = LlamaConfig(**TINY).to_dict()
    with pytest.raises(ValueError, match=words):
        our_config(config | changes)


@rejects("llama.load_llama: («names→set()»", "what is left over in a Llama's file is ignored")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model.norm.weight": None}, "^model.norm.weight: is missing"),
        ({UP: torch.zeros(2, 2)}, r"mlp.up_proj.weight: \(2, 2\), expected \(24, 16\)"),
        ({UP: torch.full((24, 16), torch.nan)}, f"{UP}: has values that are not finite"),
        ({"model.layers.0.self_attn.q_proj.bias": torch.zeros(16)}, "q_proj.bias: unknown$"),
        (dict.fromkeys("ab", torch.zeros(1)), "^a: unknown, and 1 more$"),
        ({"lm_head.weight": torch.zeros(11, 16)}, "lm_head.weight: differs from the embedding"),
        *(
            ({UP: torch.zeros(24, 16).to(dtype)}, f"^{UP}: {str(dtype)[6:]}, not bfloat16")
            for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.bool)
        ),
        ({"lm_head.weight": torch.zeros(11, 16).to(torch.float8_e5m2)}, "lm_head.weight: differs"),
    ],
)
def test_weights_that_do_not_fit_are_named_and_nothing_is_copied(make_model, change, words):
    parent, model = make_model(latent_bits=0), make_model(seed=1)
    before = {name: p.clone() for name, p in model.named_parameters()}
    weights = {k: w for k, w in (llama_weights(parent) | change).items() if w is not None}
    with pytest.raises(ValueError, match=words):
        load_llama(model, weights)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


@rejects("llama.load_llama: «:ids→-ids:»", "the last rows of a padded vocabulary taken for its ids")
@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_rows_beyond_the_tokenizer_are_kept_and_never_predicted(make_model, tokens, tied):
    """Of a parent with 17 rows for 11 ids: probabilities are its own, renormalised over the ids."""
    config = AutoConfig.for_model(
        "qwen2", **TINY | {"vocab_size": 17}, tie_word_embeddings=tied, initializer_range=0.3
    )
    theirs = AutoModelForCausalLM.from_config(config).eval()
    weights = {k: w for k, w in theirs.state_dict().items() if not tied or k != "lm_head.weight"}
    model = FreeTransformer(our_config(config.to_dict()), 11).eval()
    padding = load_llama(model, weights, 17)
    logits, hidden = theirs(tokens).logits, model(tokens[:, :-1]).hidden.flatten(0, 1)
    targets = tokens[:, 1:].flatten()
    p = logits[:, :-1].softmax(-1)[..., :11].flatten(0, 1)
    expected = -(p / p.sum(1, keepdim=True)).log().gather(1, targets[:, None]).mean()
    loss = linear_cross_entropy(hidden, model.readout.weight, targets)
    torch.testing.assert_close(loss, expected)
    assert loss < F.cross_entropy(logits[:, :-1].flatten(0, 1), targets) - 0.1  # over all rows
    exported = llama_weights(model, padding=padding)
    assert exported.keys() == weights.keys() and len(padding) == 2 - tied
    assert all(torch.equal(exported[name], weights[name]) for name in weights)
    with pytest.raises(ValueError, match=r"embed_tokens.weight: \(17, 24\), expected \(18, 24\)"):
        load_llama(model, weights, 18)


def test_a_qwen_3_that_does_not_say_its_head_width_is_refused():
    """Whose default is not D / N."""
    config = Qwen3Config(**TINY).to_dict()
    assert config["head_dim"] == 128
    assert our_config(config).head_channels == 128
    del config["head_dim"]
    with pytest.raises(ValueError, match=r"^head_dim: missing, expected a whole number"):
        our_config(config)


def test_what_is_null_in_a_llamas_file_is_hugging_faces_default():
    config = LlamaConfig(**TINY).to_dict()
    assert our_config(config | {"num_key_value_heads": None}).n_kv_heads == 6
    assert our_config(config | {"rope_parameters": None}).rope_theta == 10_000
    assert config["rope_parameters"]["rope_theta"] == 10_000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "a Free Transformer is not a Llama"),
        ({"latent_bits": 0, "document_mask": True}, "^document_mask: a Llama cannot"),
        (
            {"latent_bits": 0, "qkv_bias": True, "qk_norm": True},
            "^qkv_bias, qk_norm: cannot both be exported",
        ),
        ({"latent_bits": 0, "n_heads": 3, "n_kv_heads": 3, "head_width": 4}, "^n_heads: 3 does"),
    ],
)
def test_what_is_no_llama_is_refused(make_model, changes, words):
    with pytest.raises(ValueError, match=words):
        llama_config(make_model(**changes).config, 11)


@pytest.mark.parametrize(("low", "high"), [(1.0, 4.0), (0.2, 0.4)])
def test_llama_3_slows_down_rotations_as_transformers_does(low, high):
    """Some kept, some slowed down by the factor, some between."""
    parameters = LLAMA_3 | {"rope_theta": 100.0, "original_max_position_embeddings": 64}
    parameters |= {"factor": 8.0, "low_freq_factor": low, "high_freq_factor": high}
    config = LlamaConfig(**TINY | {"hidden_size": 96}, rope_parameters=parameters)
    theirs = LlamaRotaryEmbedding(config).inv_freq
    ours = our_config(config.to_dict())
    rates = rope_rates(ours, torch.device("cpu"))
    torch.testing.assert_close(rates, theirs)
    plain = rope_rates(replace(ours, rope_factor=1.0), torch.device("cpu"))
    assert len({round(each, 3) for each in (plain / rates).tolist()}) > 2
    assert rope_parameters(ours) == parameters
