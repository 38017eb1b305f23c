"""A separate encoder: blocks of its own over the token embeddings, in place of the one ζ queries.

tests/model/test_transformer.py holds it against a reference; here is what it may and may not read.
"""

import pytest
import torch

from ftmodel.model.config import ModelConfig
from ftmodel.model.latent_design import LatentDesign
from ftmodel.model.objective import training_loss
from ftmodel.model.transformer import FreeTransformer
from tests.support.mutants import rejects

LAYERS = [1, 2, 3]


@pytest.fixture(params=LAYERS)
def model(request, make_model):
    return make_model(latent={"encoder": "separate", "encoder_layers": request.param})


@pytest.fixture
def noise(rng):
    return torch.rand(2, 7, 3, generator=rng)


def test_two_layers_unless_the_design_says_otherwise():
    assert LatentDesign(encoder="separate") == LatentDesign("separate", 2)
    assert LatentDesign().encoder_layers is None


@pytest.mark.parametrize("layers", LAYERS)
def test_it_has_blocks_like_the_decoders_and_no_zeta(make_model, layers):
    """In place of one such block and ζ; all else of the latent stays."""
    shared = make_model()
    separate = make_model(latent={"encoder": "separate", "encoder_layers": layers})
    block = [f"{name}" for name, _ in shared.blocks[0].named_parameters()]
    own = {f"latent.encoder_blocks.{n}.{name}" for n in range(layers) for name in block}
    paper = {"latent.zeta", *(f"latent.encoder_block.{name}" for name in block)}
    assert separate.state_dict().keys() == shared.state_dict().keys() - paper | own
    assert separate.config.n_encoder_blocks == layers and shared.config.n_encoder_blocks == 1
    assert make_model(latent_bits=0).config.n_encoder_blocks == 0


@rejects(
    "model/transformer.py",
    "self.latent.encode(self.embedding(tokens) if separate else x, positions)",
    "self.latent.encode(x, positions)",
    "separate encoder over the lower half's activations",
)
@torch.no_grad()
def test_z_is_inferred_from_the_tokens_alone(model, make_tokens, noise):
    """No block of the decoder has a say, but the embeddings have."""
    tokens = make_tokens(2, 7)
    before = model(tokens, noise).bit_logits
    for parameter in (*model.blocks.parameters(), *model.norm.parameters()):
        parameter.mul_(-1.5)
    assert torch.equal(model(tokens, noise).bit_logits, before)
    model.embedding.weight[tokens[0, 3]] += 1
    assert (model(tokens, noise).bit_logits[0] - before[0]).abs().amax(-1).min() > 1e-4


@rejects(
    "model/latent.py",
    "y = block(y, None, positions, causal=False)",
    "y = block(y, None, positions, causal=True)",
    "separate encoder causal",
)
@torch.no_grad()
def test_every_position_reads_every_token_and_their_order(model, make_tokens, noise):
    tokens = make_tokens(2, 7)
    before = model(tokens, noise).bit_logits
    for t in range(7):
        other = tokens.clone()
        other[:, t] = (tokens[:, t] + 1) % 11
        assert (model(other, noise).bit_logits - before).abs().amax(-1).min() > 1e-5
    tokens[:, :2] = torch.tensor([3, 4])
    turned = tokens.clone()
    turned[:, :2] = torch.tensor([4, 3])
    change = model(tokens, noise).bit_logits - model(turned, noise).bit_logits
    assert change[:, 2:].abs().amax(-1).min() > 1e-5


@torch.no_grad()
def test_given_z_no_output_depends_on_later_tokens_and_the_encoder_is_not_used(
    model, make_tokens, noise
):
    tokens = make_tokens(2, 7)
    sampled = model(tokens, noise)
    for parameter in (*model.latent.encoder_blocks.parameters(), model.latent.readout.weight):
        parameter.fill_(torch.nan)
    whole = model(tokens, codes=sampled.codes).hidden
    torch.testing.assert_close(whole, sampled.hidden)
    for t in range(1, 7):
        other = tokens.clone()
        other[:, t:] = (tokens[:, t:] + 1) % 11
        changed = model(other, codes=sampled.codes).hidden
        assert torch.equal(changed[:, :t], whole[:, :t])
        assert not torch.equal(changed[:, t], whole[:, t])


@rejects(
    "model/latent.py",
    "y = block(y, None, positions, causal=False)",
    "y = block(y, None, Positions(positions.rope), causal=False)",
    "separate encoder over the boundaries of documents",
)
@torch.no_grad()
def test_a_document_is_encoded_without_a_token_of_another(model, make_tokens, noise):
    tokens = make_tokens(2, 7)
    documents = torch.tensor([0, 0, 0, 1, 1, 1, 1]).expand(2, -1)
    before = model(tokens, noise, documents=documents).bit_logits
    other = tokens.clone()
    other[:, 3:] = (tokens[:, 3:] + 1) % 11
    change = (model(other, noise, documents=documents).bit_logits - before).abs().amax(-1)
    assert change[:, :3].max() == 0 and change[:, 3:].min() > 1e-4


@torch.no_grad()
def test_tokens_under_padding_are_not_read(model, make_tokens, noise):
    tokens, padding = make_tokens(2, 7), torch.tensor([3, 1])
    other = tokens.clone()
    other[0, :3], other[1, :1] = 10 - tokens[0, :3], 10 - tokens[1, :1]
    before, after = (model(x, noise, padding=padding).bit_logits for x in (tokens, other))
    assert torch.equal(before[0, 3:], after[0, 3:]) and torch.equal(before[1, 1:], after[1, 1:])
    assert not torch.equal(before, after), "a padding position itself reads what is there"


@pytest.mark.parametrize("kappa", [0.0, 99.0])
def test_the_loss_reaches_all_of_it(make_model, make_tokens, rng, kappa):
    """By reconstruction alone, too: with κ out of reach the KL costs nothing."""
    model = make_model(latent={"encoder": "separate"}, tied=False)
    tokens, noise = make_tokens(2, 8), torch.rand(2, 7, 3, generator=rng)
    training_loss(model, tokens[:, :-1], tokens[:, 1:], noise, kappa).total.backward()
    unreached = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert unreached == []


def test_its_blocks_begin_with_the_latents_std():
    torch.manual_seed(0)
    shape = dict(n_layers=4, d_model=64, n_heads=4, n_kv_heads=2, ffn_width=96, context=8)
    config = ModelConfig(**shape, latent_bits=8, latent_std=0.1, latent={"encoder": "separate"})
    matrices = [p for p in FreeTransformer(config, 128).latent.parameters() if p.dim() > 1]
    assert len(matrices) == 2 * 5 + 2
    for matrix in matrices:
        assert matrix.std().item() == pytest.approx(0.1, rel=0.25)
