"""Information of the bits of z, measured on models whose encoder is known."""

from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from ftmodel.analysis.information import bit_information as information
from ftmodel.config import LatentDesign
from ftmodel.designs.hinge import LN2
from ftmodel.designs.prior import UniformPrior
from ftmodel.model.objective import kl_per_bit
from pipelines.artifacts.packing import Chunk, packed
from pipelines.common.rng_streams import Purpose, generator
from pipelines.evaluate import codes
from pipelines.evaluate.codes import contexts, encode_chunks, informative_bits
from tests.evaluate.conftest import chunk
from tests.support.mutants import rejects

CPU = torch.device("cpu")
LENGTHS = [(0, 16), (0, 5), (1, 16), (2, 9), (3, 3)]  # document and predicted tokens of chunks


@pytest.fixture
def chunks():
    return [chunk(document, length, i) for i, (document, length) in enumerate(LENGTHS)]


@rejects("codes.encode_chunks: o, «starts→None»", "bits of z that a token does not read")
@rejects("passes.encode: «model.prior_logits(x, at→latent.prior(x»", "KL where no z is drawn")
@pytest.mark.parametrize(
    "latent",
    [
        {"prior": "learned"},
        {"encoder": "separate", "prior": "learned"},
        {"per": "every", "every": 3},
        {"per": "every", "every": 3, "prior": "learned"},
    ],
    ids=str,
)
@torch.no_grad()
def test_each_chunk_is_encoded_as_if_it_stood_alone(make_model, chunks, latent):
    """A token's bits are those that it reads, and their KL is where they are drawn."""
    model = make_model(latent=latent).eval()
    encoded = encode_chunks(model, chunks, 2, 0, CPU)
    assert len(list(packed(chunks, 16, 2))) > 1, "one batch would test little"
    start = 0
    for number, each in enumerate(chunks):
        part = slice(start, start + len(each))
        out = model(torch.from_numpy(each.tokens[None, :-1]), torch.zeros(1, len(each), 3))
        o, kl = out.bit_logits[0], kl_per_bit(out.bit_logits, out.prior_logits)[0]
        index, every = torch.arange(len(each)), latent.get("every", 1)
        first = index // every * every
        torch.testing.assert_close(encoded.o[part], o[first], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(encoded.kl[part], kl, atol=1e-5, rtol=1e-4)
        assert not encoded.kl[part][index != first].any()
        assert encoded.chunk[part].tolist() == [number] * len(each)
        assert encoded.document[part].tolist() == [each.document] * len(each)
        start += len(each)
    assert encoded.tokens.tolist() == np.concatenate([c.tokens for c in chunks]).tolist()


@rejects(
    "codes.contexts: most_certain(o if is_set else -o, «encoded.document→"
    "torch.arange(len(o))», CONTEXTS",
    "several places of one document among a bit's contexts",
)
def test_contexts_are_where_the_bit_is_most_certain(make_model, chunks, shards):
    """The context is cut at the ends of its chunk, and each document gives one at most."""
    encoded = encode_chunks(make_model().eval(), chunks, 2, 0, CPU)
    starts = np.cumsum([0, *map(len, chunks)])
    for sign in (1, -1):
        shown = contexts(encoded, chunks, shards, 1, is_set=sign == 1)
        assert len(shown) == 4
        values = sign * encoded.o[:, 1]
        best = [values[encoded.document == d].argmax() + (encoded.document < d).sum()
                for d in range(4)]  # fmt: skip
        best.sort(key=lambda position: -values[position])
        for context, position in zip(shown, best, strict=True):
            number = int(encoded.chunk[position])
            tokens, t = chunks[number].tokens, int(position) - int(starts[number])
            assert context.token == str(tokens[t])
            assert context.before == ",".join(map(str, tokens[max(0, t - 12) : t]))
            assert context.after == ",".join(map(str, tokens[t + 1 : t + 9]))
            assert context.probability == encoded.o[position, 1].sigmoid().item()


@rejects("codes.persistence: , «lag→0»))", "the permutations of lag 0 for all lags")
def test_each_lag_is_measured_with_a_stream_of_its_own(monkeypatch):
    measured = Mock(return_value=("figure", None))
    monkeypatch.setattr(codes, "bit_information", measured)
    assert codes.persistence("encoded", 0) == ["figure"] * 33
    lags, streams = zip(*(call.args[1:] for call in measured.mock_calls), strict=True)
    assert lags == (*range(33),) and len({rng.initial_seed() for rng in streams}) == 33


def test_bits_are_ranked_by_kl_and_idle_ones_left_out(make_model, chunks, shards):
    model = make_model().eval()
    with torch.no_grad():
        model.latent.readout.weight.mul_(torch.tensor([0.3, 0.0, 1.0])[:, None])
    encoded = encode_chunks(model, chunks, 2, 0, CPU)
    assert not informative_bits(encoded, chunks, shards, 0, least=1.0)
    least = (encoded.kl.double() / LN2)[:, 0].mean().item()
    bits = informative_bits(encoded, chunks, shards, 0, least)
    assert [bit.bit for bit in bits] == [2, 0]
    kl = kl_per_bit(encoded.o).double().mean(0) / LN2
    assert [bit.kl.mean for bit in bits] == pytest.approx([kl[2].item(), kl[0].item()])
    for lag, name in enumerate(("read", "predicted")):
        _, found = information(encoded, lag, generator(0, Purpose.BITS, 33 + lag))
        assert [getattr(bit, name) for bit in bits] == [found[2], found[0]]


def test_an_encoder_that_says_nothing_has_no_bit_to_show(make_model, chunks, measured):
    model = make_model().eval()
    with torch.no_grad():
        model.latent.readout.weight.zero_()
    persistence, curve, bits = measured(codes.measure_bits, model, chunks)
    assert bits == []
    assert [excess.bits for excess in curve] == [0] * 17
    assert list(persistence) == [0, 1, 2, 4, 8, 16]


def test_a_bit_of_a_z_for_many_tokens_is_not_idle_for_its_few_bits_a_token(
    make_model, chunks, measured, monkeypatch
):
    """A z for 16 tokens may tell as much as sixteen of one token each, a 16th of it a token."""
    for least, per, shown in ((0.2, "token", 3), (0.2, "sequence", 3), (10.0, "sequence", 0)):
        monkeypatch.setattr(codes, "MIN_KL_BITS", least)
        model = make_model(latent={"per": per}, context=16).eval()
        with torch.no_grad():
            model.latent.readout.weight.mul_(100)
        *_, bits = measured(codes.measure_bits, model, chunks)
        assert len(bits) == shown, (per, least)


def test_an_encoder_that_names_the_token_has_its_information(rng, measured):
    """Bit h of z is bit h of the token that is read: of 8 equally likely ones, 3 bits at lag 0."""
    tokens, bit = torch.randint(8, (60, 17), generator=rng), torch.arange(3)
    chunks = [Chunk(i, 0, row.numpy()) for i, row in enumerate(tokens)]
    model = SimpleNamespace(
        latent=SimpleNamespace(prior=UniformPrior(None)),
        prior_logits=lambda *_: None,
        encode=lambda tokens, *_: 30 * (2.0 * (tokens[..., None] >> bit & 1) - 1),
        config=SimpleNamespace(context=16, latent_bits=3, latent_capacity=3, latent=LatentDesign()),
        noise_source=SimpleNamespace(width=3),
        positions=lambda *_, **__: None,
        lower=lambda tokens, _: tokens,
    )
    persistence, curve, bits = measured(codes.measure_bits, model, chunks)
    at_0, at_1 = persistence[0], persistence[1]
    assert at_0.bits == pytest.approx(3, abs=0.05)
    assert at_1.bits == pytest.approx(0, abs=4 * at_1.se)
    assert at_0 == curve[0]
    for of_bit in bits:
        assert of_bit.read.bits == pytest.approx(1, abs=0.02)
        for value, shown in ((1, of_bit.set), (0, of_bit.unset)):
            assert {int(c.token) >> of_bit.bit & 1 for c in shown} == {value}
