"""Algorithm 2, against examples/free_transformer.py, and other designs of the latent."""

from dataclasses import replace
from math import inf, nan, sqrt

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ftmodel.config import LatentDesign, ModelConfig
from ftmodel.inference.passes import from_prior, with_codes
from ftmodel.model.free_transformer import FreeTransformer
from tests.support.example import assert_same_gradients, example, example_of
from tests.support.mutants import rejects


class Attention(example.Attention):
    """Keys and values of one input, kv (B, T, D), or of two, one after the other (B, 2 T, D); and
    queries and keys with a norm.
    """

    def __init__(self, c, qk_norm):
        super().__init__(c)
        self.query_norm, self.key_norm = (
            example.RMSNorm(c.head_width, c.norm_eps) if qk_norm else nn.Identity()
            for _ in range(2)
        )

    def forward(self, q, kv, causal):
        t, keys, values = q.shape[1], [], []
        for x in kv.split(t, dim=1):
            k, v = map(self.heads, self.key_value(x).chunk(2, dim=-1))
            keys.append(example.rope(self.key_norm(k), self.theta))
            values.append(v)
        future = torch.ones(t, t, dtype=torch.bool).triu(1).repeat(1, len(keys))
        keys, values = torch.cat(keys, dim=2), torch.cat(values, dim=2)
        keys, values = (x.repeat_interleave(self.group, dim=1) for x in (keys, values))
        queries = example.rope(self.query_norm(self.heads(self.query(q))), self.theta)
        scores = queries @ keys.mT / sqrt(self.width)
        scores = scores.masked_fill(future, -torch.inf) if causal else scores
        return self.output((scores.softmax(-1) @ values).transpose(1, 2).flatten(2))


class Reference(example.FreeTransformer):
    """Algorithm 2 with what the paper has not: other encoders, injections and priors, norms as in
    Qwen 3. tests/model/test_objective.py has the other maps and gradients.
    """

    def __init__(self, c, config):
        super().__init__(c)
        self.design, latent = config.latent, self.latent
        self.middle = 0 if self.design.inject == "embedding" else self.middle
        if self.design.encoder == "separate":
            del latent.zeta, latent.encoder_block
            count = self.design.encoder_layers
            latent.encoder_blocks = nn.ModuleList(example.Block(c) for _ in range(count))
        if self.design.prior == "learned":
            readout = nn.Linear(c.d_model, c.latent_bits, bias=False)
            norm = example.RMSNorm(c.d_model, c.norm_eps)
            latent.prior = nn.ModuleDict({"norm": norm, "readout": readout})
        for block in [m for m in self.modules() if isinstance(m, example.Block)]:
            block.attention = Attention(c, config.qk_norm)

    def lower(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks[: self.middle]:
            x = block(x, x)
        return x

    def encode(self, tokens):
        if self.design.encoder == "shared":
            return self.latent.encode(self.lower(tokens))
        y = self.embedding(tokens)
        for block in self.latent.encoder_blocks:
            y = block(y, y, causal=False)
        return self.latent.readout(self.latent.norm(y))

    def prior_logits(self, tokens):
        return self.latent.prior["readout"](self.latent.prior["norm"](self.lower(tokens)))

    def forward(self, tokens, noise):
        """Logits (B, T, V), codes (B, T) and bit logits (B, T, H)."""
        x, o, inject = self.lower(tokens), self.encode(tokens), self.design.inject
        r, z = example.BinaryMapper.apply(o, noise, self.latent.post_sampler)
        if inject in ("residual", "embedding"):
            x = x + r
        kv = {"memory": torch.cat((x, r), dim=1), "kv": x + r, "kv_all": x + r}.get(inject, x)
        x = self.blocks[self.middle](x, kv)
        for block in self.blocks[self.middle + 1 :]:
            x = block(x, x + r if inject == "kv_all" else x)
        return self.readout(self.norm(x)), z, o


def reference_of(model):
    """The example, if the model is the paper's and its blocks Llama's."""
    if model.config.latent == LatentDesign() and not model.config.qk_norm:
        return example_of(model)
    return example_of(model, Reference, model.config)


DESIGNS = [
    {"inject": "residual"},
    {"inject": "embedding"},
    {"inject": "kv_all"},
    {"inject": "memory"},
    {"encoder": "separate"},
    {"encoder": "separate", "encoder_layers": 1, "inject": "residual"},
    {"encoder": "separate", "encoder_layers": 3, "inject": "kv_all"},
]
SHAPES = [
    {},
    {"n_layers": 2, "tied": False},
    {"n_layers": 6, "n_kv_heads": 4, "rope_theta": 20.0},
    {"n_layers": 5, "latent_block": 2},
    {"n_layers": 3, "latent_block": 3},
    {"head_width": 6, "qk_norm": True, "norm_eps": 0.1},  # Qwen 3
    *({"latent_block": block} for block in (1, 2, 4)),
    {"latent_block": 1, "latent": {"encoder": "separate", "inject": "memory"}},
    {"latent_block": 4, "latent": {"inject": "kv_all"}},
    *({"latent": design} for design in DESIGNS),
]


@pytest.fixture
def noise(rng):
    """Noise (2, 7, 3) for two sequences of 7 tokens with 3 bits each."""
    return torch.rand(2, 7, 3, generator=rng)


@rejects("KeyValueInjection.__call__: «x,→» x + r if n == self.first else «None→x»", "r added to x")
@rejects("Block.forward: «→kv if kv is not None and causal else »q)", "r added to the queries")
@rejects("Block.forward: self.attention_norm(«kv→q»)«→ + kv - q»", "norm(x) + r, not norm(x + r)")
@rejects("FreeTransformer.upper: lower_blocks«→ + 1»,", "block L/2 + 1 skipped")
@rejects(
    "ModelConfig.lower_blocks: is None«→ or True» else", "r half-way, whatever latent_block says"
)
@rejects("Latent.sample: «→ if self.training else 0 * noise + 0.5», self", "bits without noise")
@rejects("AllKeyValues.__call__: r«→ if n == self.first else None»)", "kv_all in one block alone")
@rejects("Block.forward: kv)«→ if type(self.attention) is Attention else kv»", "memory not normed")
@rejects("FreeTransformer.encode: )«→.detach()» return", "embeddings not trained by the encoder")
@rejects("FreeTransformer.forward: , x«→.detach()»", "encoder's gradient kept from the lower half")
@rejects("SharedEncoder.__call__: («latent.zeta→x»", "encoder queries from x")
@rejects("Attention.forward: «→ if causal else Positions(at.rope**0)») past", "no RoPE on keys")
@rejects("mapper.binary_mapper: apply(o«→.detach()»", "gradient detached")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_outputs_and_gradients_equal_those_of_algorithm_2(make_model, make_tokens, noise, shape):
    """Pins where r enters (keys and values, before their norm), that each block runs once, and that
    nothing differs in evaluation mode. Gradients are those of every path through the algorithm.
    """
    model, tokens = make_model(**shape), make_tokens(2, 8)
    inputs, targets, reference = tokens[:, :-1], tokens[:, 1:], reference_of(model)
    logits, codes, bit_logits = reference(inputs, noise)
    assert len(codes.unique()) > 2, "with one code everywhere a wrong r could go unseen"
    for training in (False, True):
        out = model.train(training)(inputs, noise)
        y = model.logits(out.hidden)
        torch.testing.assert_close(out.bit_logits, bit_logits.float(), atol=5e-5, rtol=1e-5)
        assert torch.equal(out.codes, codes)
        torch.testing.assert_close(y, logits.float(), atol=5e-5, rtol=1e-5)
    for each, o in ((y, out.bit_logits), (logits, bit_logits)):
        (F.cross_entropy(each.transpose(1, 2), targets) + 0.1 * o.square().mean()).backward()
    assert_same_gradients(model, reference)


def test_without_positions_every_token_would_have_the_same_posterior(make_model, make_tokens):
    """ζ is one query for all tokens: RoPE alone tells the encoder which token it answers for."""
    model, tokens = make_model(), make_tokens(1, 8)
    at = model.positions(tokens)
    x = model.lower(tokens, at)
    without = model.encode(tokens, x, replace(at, rope=at.rope**0))
    torch.testing.assert_close(without, without[:, :1].expand_as(without))
    assert model.encode(tokens, x, at).std(1).min() > 1e-3


@rejects("FreeTransformer.prior_logits: prior(«x→hidden»", "a prior that reads what its block adds")
@torch.no_grad()
def test_a_learned_prior_reads_the_tokens_so_far(make_model, make_tokens, noise):
    """By the activations below the block that reads z; z of the prior is drawn with its bits."""
    model, tokens = make_model(latent={"prior": "learned"}, latent_block=2), make_tokens(2, 7)
    out = model(tokens, noise)
    expected = reference_of(model).prior_logits(tokens)
    torch.testing.assert_close(out.prior_logits, expected.float(), atol=5e-5, rtol=1e-5)
    drawn = from_prior(model, tokens, noise)
    codes = sum((noise[..., h] < expected[..., h].sigmoid()).long() << h for h in range(3))
    assert torch.equal(drawn.codes, codes)
    torch.testing.assert_close(drawn.hidden, with_codes(model, tokens, codes).hidden)
    tokens[:, 4:] = 10 - tokens[:, 4:]
    assert torch.equal(model(tokens, noise).prior_logits[:, :4], out.prior_logits[:, :4])


@rejects(
    "MemoryAttention.forward: «mask.repeat_interleave(2→torch.stack((mask, "
    "torch.ones_like(mask))», dim=-1)«→.flatten(-2)»",
    "memory read before its position",
)
@pytest.mark.parametrize("latent", [{}, {"inject": "memory"}, {"encoder": "separate"}], ids=str)
@torch.no_grad()
def test_given_z_no_logit_sees_later_tokens_or_codes_and_the_encoder_is_not_used(
    make_model, make_tokens, noise, latent
):
    """The code of a position is seen from that position on."""
    model, tokens = make_model(latent=latent), make_tokens(2, 7)
    sampled = model(tokens, noise)
    for name, parameter in model.latent.named_parameters():
        if name != "post_sampler":
            parameter.fill_(torch.nan)
    before = with_codes(model, tokens, sampled.codes)
    torch.testing.assert_close(before.hidden, sampled.hidden)
    assert before.bit_logits is None
    for t in range(7):
        one = torch.arange(7) == t
        changes = (
            with_codes(model, torch.where(one, (tokens + 1) % 11, tokens), sampled.codes),
            with_codes(model, tokens, torch.where(one, sampled.codes ^ 1, sampled.codes)),
        )
        for changed in changes:
            change = model.logits(changed.hidden) - model.logits(before.hidden)
            assert change[:, :t].abs().sum() == 0
            assert (change[:, t].abs().amax(-1) > 1e-4).all()


@torch.no_grad()
def test_compiled_blocks_turn_queries_and_keys_as_plain_ones_do(make_model, make_tokens):
    """Compiled, RoPE has no complex numbers; traced as for inductor, but run at once."""
    model, tokens = make_model(latent_bits=0, rope_theta=50.0), make_tokens(2, 16)
    expected, traced = model(tokens).hidden, []

    def backend(graph, inputs):
        traced.append(graph.code)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    for block in model.blocks:
        block.compile(backend=backend, fullgraph=True)
    torch.testing.assert_close(model(tokens).hidden, expected, atol=5e-5, rtol=1e-5)
    assert traced and "complex" not in "".join(traced)


@pytest.mark.parametrize("encoder", ["shared", "separate"])
def test_initial_weights_are_gpt_2s_but_for_embeddings_and_latent(encoder):
    """std 0.02, over √(2 L) into the decoder's residual stream; gains of RMSNorm start at 1, biases
    and a learned prior, which is then uniform, at 0.
    """
    torch.manual_seed(0)
    shape = dict(n_layers=4, d_model=64, n_heads=4, n_kv_heads=2, ffn_width=96, context=8)
    more = dict(embedding_std=0.5, latent_std=0.1, qkv_bias=True)
    latent = {"encoder": encoder, "prior": "learned"}
    config = ModelConfig(**shape, **more, latent_bits=8, latent=latent)
    for name, parameter in FreeTransformer(config, 128).named_parameters():
        if parameter.dim() == 1:
            assert (parameter == name.endswith("weight")).all(), name
            continue
        if name == "latent.prior.readout.weight":
            assert not parameter.any()
            continue
        if name.startswith("embedding"):
            std = 0.5
        elif name.startswith("latent") and "zeta" not in name:
            std = 0.1
        else:
            into_residual = name.endswith(("output.weight", "down.weight"))
            std = 0.02 / (sqrt(8) if into_residual else 1)
        error = (2 * parameter.numel()) ** -0.5  # of a sample's standard deviation, over it
        assert parameter.std().item() == pytest.approx(std, rel=4 * error), name


LEAST = dict(n_layers=2, d_model=4, n_heads=2, n_kv_heads=1, ffn_width=1, context=16, latent_bits=1)
LIMITS = [  # a field, a value that is possible, mostly at its limit, and one that is not
    *(("n_layers", 1 << 10, n) for n in ((1 << 10) + 2, 3, 0)),
    *(("n_heads", 1, n) for n in (3, 4)),
    *(("n_kv_heads", 2, 3), ("latent_std", 1.0, nan)),
    *(("head_width", 1 << 19, n) for n in ((1 << 19) + 2, 5, 0)),  # of two heads
    *((field, 1 << 20, (1 << 20) + 2) for field in ("d_model", "ffn_width")),
    *((field, 1 << 20, (1 << 20) + 1) for field in ("context", "rope_old_context")),
    *((field, 1, 0) for field in ("ffn_width", "context", "rope_old_context", "latent_block")),
    *((field, 1.0, 0.9999) for field in ("rope_theta", "rope_factor")),
    *((field, 1e300, inf) for field in ("rope_theta", "rope_factor", "rope_high_freq")),
    ("rope_low_freq", 1e-300, 0.0),
    ("rope_high_freq", 1.0001, 1.0),
    *((field, 1e-300, 0.0) for field in ("norm_eps", "embedding_std", "latent_std")),
    *((field, 1e300, inf) for field in ("norm_eps", "embedding_std", "latent_std")),
    ("latent_bits", 0, -1),
    ("latent_bits", 24, 25),
    ("latent_block", 2, 3),
    *(
        ("latent", {"encoder": "separate", "encoder_layers": layers}, dict(encoder_layers=beyond))
        for layers, beyond in ((1, 0), (1 << 10, (1 << 10) + 1))
    ),
    *(("latent", dict(per="every", every=n), dict(every=m)) for n, m in ((2, 1), (15, 16))),
]


@pytest.mark.parametrize(("field", "limit", "beyond"), LIMITS, ids=str)
def test_shapes_are_possible_up_to_their_limits(field, limit, beyond):
    ModelConfig(**LEAST | {field: limit}).validate()
    beyond = limit | beyond if field == "latent" else beyond
    with pytest.raises(ValueError, match=rf"^{field}[.:]"):
        ModelConfig(**LEAST | {field: beyond}).validate()


def test_rotations_may_all_be_slow():
    ModelConfig(**LEAST, rope_low_freq=0.25, rope_high_freq=0.5).validate()
    with pytest.raises(ValueError, match=r"rope_factor: 0\.5 must be at least 1$"):
        ModelConfig(**LEAST, rope_factor=0.5).validate()


def test_a_head_of_one_channel_cannot_turn():
    with pytest.raises(ValueError, match="RoPE needs an even head width, not 1"):
        ModelConfig(**LEAST | {"head_width": 1, "n_heads": 1}).validate()


def test_decoders_differ_by_what_their_weights_do_not_say():
    """Numbers to 1e-6; a head width that is the default's is none, and the latent is no part."""
    ours = ModelConfig(**LEAST)
    same = replace(ours, latent_bits=3, context=8, head_width=2, norm_eps=1.0000005e-5)
    assert not ours.decoder_differences(same)
    theirs = replace(same, tied=False, rope_theta=10000.02)
    differences = {"tied": (True, False), "rope_theta": (10000.0, 10000.02)}
    assert ours.decoder_differences(theirs) == differences


def test_only_a_latent_half_way_needs_an_even_depth(make_model):
    assert len(make_model(n_layers=3, latent={"inject": "embedding"}, latent_block=1).blocks) == 3
    assert len(make_model(n_layers=3, latent_bits=0).blocks) == 3
    assert len(make_model(n_layers=3, latent_block=1).blocks) == 3


@rejects("FreeTransformer.__init__: «→.data» = self.embedding.weight«→.data»", "one matrix twice")
@pytest.mark.parametrize("tied", [True, False])
def test_embedding_and_readout_are_one_parameter_if_tied_and_two_if_not(make_model, tied):
    model = make_model(tied=tied)
    assert (model.readout.weight is model.embedding.weight) == tied
    assert ("readout.weight" in dict(model.named_parameters())) == (not tied)
