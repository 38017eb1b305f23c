"""What the paper's encoder and a separate one may read, and what may depend on z."""

import pytest
import torch

from ftmodel.model.latent_design import LatentDesign
from tests.support.mutants import rejects

LAYERS = [1, 2, 3]
SEPARATE = [{"encoder": "separate", "encoder_layers": layers} for layers in LAYERS]


@pytest.fixture(params=SEPARATE, ids=str)
def separate(request, make_model):
    return make_model(latent=request.param)


@pytest.fixture
def noise(rng):
    return torch.rand(2, 7, 3, generator=rng)


def test_a_separate_encoder_has_blocks_like_the_decoders_and_no_zeta(separate, make_model):
    """In place of one such block and ζ; all else of the latent stays."""
    shared = make_model()
    block = [name for name, _ in shared.blocks[0].named_parameters()]
    layers = separate.config.latent.encoder_layers
    own = {f"latent.encoder_blocks.{n}.{name}" for n in range(layers) for name in block}
    paper = {"latent.zeta", *(f"latent.encoder_block.{name}" for name in block)}
    assert separate.state_dict().keys() == shared.state_dict().keys() - paper | own
    assert separate.config.n_encoder_blocks == layers and shared.config.n_encoder_blocks == 1
    assert make_model(latent_bits=0).config.n_encoder_blocks == 0
    assert LatentDesign(encoder="separate").encoder_layers == 2
    assert LatentDesign().encoder_layers is None


@rejects(
    "model/transformer.py",
    "self.latent.encode(self.embedding(tokens) if separate else x, positions)",
    "self.latent.encode(x, positions)",
    "separate encoder over the lower half's activations",
)
@torch.no_grad()
def test_a_separate_encoder_reads_the_tokens_alone(separate, make_tokens, noise):
    """No block of the decoder has a say, but the embeddings have."""
    tokens = make_tokens(2, 7)
    before = separate(tokens, noise).bit_logits
    for parameter in (*separate.blocks.parameters(), *separate.norm.parameters()):
        parameter.mul_(-1.5)
    assert torch.equal(separate(tokens, noise).bit_logits, before)
    separate.embedding.weight[tokens[0, 3]] += 1
    assert (separate(tokens, noise).bit_logits[0] - before[0]).abs().amax(-1).min() > 1e-4


@rejects(
    "model/latent.py",
    "y = block(y, None, positions, causal=False)",
    "y = block(y, None, positions, causal=True)",
    "separate encoder causal",
)
@pytest.mark.parametrize("latent", [{}, *SEPARATE], ids=str)
@torch.no_grad()
def test_every_position_reads_every_token_and_their_order(make_model, make_tokens, noise, latent):
    model, tokens = make_model(latent=latent), make_tokens(2, 7)
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


@rejects(
    "model/layers.py",
    "mask.repeat_interleave(2, dim=-1)",
    "torch.stack((mask, torch.ones_like(mask)), dim=-1).flatten(-2)",
    "memory read before its position",
)
@pytest.mark.parametrize("latent", [{}, {"inject": "memory"}, SEPARATE[1]], ids=str)
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
    before = model(tokens, codes=sampled.codes)
    torch.testing.assert_close(before.hidden, sampled.hidden)
    assert before.bit_logits is None
    for t in range(7):
        one = torch.arange(7) == t
        changes = (
            model(torch.where(one, (tokens + 1) % 11, tokens), codes=sampled.codes),
            model(tokens, codes=torch.where(one, sampled.codes ^ 1, sampled.codes)),
        )
        for changed in changes:
            change = model.logits(changed.hidden) - model.logits(before.hidden)
            assert change[:, :t].abs().sum() == 0
            assert (change[:, t].abs().amax(-1) > 1e-4).all()


@rejects(
    "model/latent.py",
    "y = block(y, None, positions, causal=False)",
    "y = block(y, None, Positions(positions.rope), causal=False)",
    "separate encoder over the boundaries of documents",
)
@torch.no_grad()
def test_a_document_is_encoded_without_a_token_of_another(separate, make_tokens, noise):
    tokens = make_tokens(2, 7)
    documents = torch.tensor([0, 0, 0, 1, 1, 1, 1]).expand(2, -1)
    before = separate(tokens, noise, documents=documents).bit_logits
    tokens[:, 3:] = (tokens[:, 3:] + 1) % 11
    change = (separate(tokens, noise, documents=documents).bit_logits - before).abs().amax(-1)
    assert change[:, :3].max() == 0 and change[:, 3:].min() > 1e-4
