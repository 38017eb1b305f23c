"""Information of the bits of z, measured on models whose encoder is known."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ftmodel.model.objective import LN2, kl_per_bit
from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.packing import Chunk, packed
from pipelines.config.data import ProcessData, TextData
from pipelines.config.schema import Evaluation
from pipelines.evaluate import bit_information
from pipelines.evaluate.bit_information import (
    contexts,
    encode_chunks,
    informative_bits,
)
from tests.support.mutants import rejects

CPU = torch.device("cpu")
LENGTHS = [(0, 16), (0, 5), (1, 16), (2, 9), (3, 3)]  # document and predicted tokens of chunks


@pytest.fixture
def chunks(rng):
    tokens = [torch.randint(11, (n + 1,), generator=rng).numpy() for _, n in LENGTHS]
    return [Chunk(d, i, t) for i, ((d, _), t) in enumerate(zip(LENGTHS, tokens, strict=True))]


@pytest.fixture
def shards():
    """A token is written as its number."""
    decode = lambda ids: ",".join(map(str, ids))  # noqa: E731
    return SimpleNamespace(tokenizer=lambda: SimpleNamespace(decode=decode))


@pytest.mark.parametrize("encoder", ["shared", "separate"])
def test_each_chunk_is_encoded_as_if_it_stood_alone(make_model, chunks, encoder):
    model = make_model(latent={"encoder": encoder, "prior": "learned"}).eval()
    encoded = encode_chunks(model, chunks, 2, 0, CPU)
    assert len(list(packed(chunks, 16, 2))) > 1, "one batch would test little"
    start = 0
    for number, chunk in enumerate(chunks):
        part = slice(start, start + len(chunk))
        inputs = torch.from_numpy(chunk.tokens[None, :-1])
        out = model(inputs, noise=torch.zeros(1, len(chunk), 3))
        o, kl = out.bit_logits.detach(), kl_per_bit(out.bit_logits, out.prior_logits).detach()
        torch.testing.assert_close(encoded.o[part], o[0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(encoded.kl[part], kl[0], atol=1e-5, rtol=1e-4)
        assert encoded.chunk[part].tolist() == [number] * len(chunk)
        assert encoded.document[part].tolist() == [chunk.document] * len(chunk)
        start += len(chunk)
    assert encoded.tokens.tolist() == np.concatenate([c.tokens for c in chunks]).tolist()


@rejects(
    "evaluate/bit_information.py",
    "at_starts(o, model.span_starts(inputs.shape[1], device, ids))",
    "o",
    "bits of z that a token does not read",
)
@rejects(
    "inference/encoding.py",
    "kl_per_bit(o, model.prior_logits(x, positions, hidden, documents))",
    "kl_per_bit(o, latent.prior_logits(x, None if hidden is None else hidden))",
    "KL of a learned prior at tokens that draw no z, where bits are ranked",
)
@pytest.mark.parametrize("prior", ["uniform", "learned"])
def test_bits_of_a_token_are_those_that_it_reads_and_cost_where_they_are_drawn(
    make_model, chunks, prior
):
    model = make_model(latent={"per": "every", "every": 3, "prior": prior}).eval()
    encoded = encode_chunks(model, chunks, 2, 0, CPU)
    start = 0
    for chunk in chunks:
        inputs = torch.from_numpy(chunk.tokens[None, :-1])
        with torch.no_grad():
            out = model(inputs, noise=torch.zeros(1, len(chunk), 3))
        o, kl = out.bit_logits[0], kl_per_bit(out.bit_logits, out.prior_logits)[0]
        first = torch.arange(len(chunk)) // 3 * 3
        part = slice(start, start + len(chunk))
        torch.testing.assert_close(encoded.o[part], o[first], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(encoded.kl[part], kl, atol=1e-5, rtol=1e-4)
        assert not encoded.kl[part][torch.arange(len(chunk)) != first].any()
        start += len(chunk)


@rejects(
    "evaluate/bit_information.py",
    "most_certain(sign * o, encoded.document, CONTEXTS)",
    "(sign * o).argsort(descending=True)[:4].tolist()",
    "several places of one document among a bit's contexts",
)
def test_contexts_are_where_the_bit_is_most_certain(make_model, chunks, shards):
    """The context is cut at the ends of its chunk, and each document gives one at most."""
    encoded = encode_chunks(make_model().eval(), chunks, 2, 0, CPU)
    starts = np.cumsum([0, *map(len, chunks)])
    for sign in (1, -1):
        shown = contexts(encoded, chunks, shards, 1, sign)
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


def test_bits_are_ranked_by_kl_and_idle_ones_left_out(make_model, chunks, shards):
    model = make_model().eval()
    with torch.no_grad():
        model.latent.readout.weight.mul_(torch.tensor([0.3, 0.0, 1.0])[:, None])
    encoded = encode_chunks(model, chunks, 2, 0, CPU)
    assert not informative_bits(encoded, chunks, shards, 0, least=1.0)
    bits = informative_bits(encoded, chunks, shards, 0, least=1e-3)
    assert [bit.bit for bit in bits] == [2, 0]
    kl = kl_per_bit(encoded.o.double()).mean(0) / LN2
    assert [bit.kl.mean for bit in bits] == pytest.approx([kl[2].item(), kl[0].item()])


def test_means_over_documents_weigh_their_positions():
    values = torch.tensor([1.0, 2.0, 6.0]).double()
    estimate = Estimate.by_document(values, torch.tensor([4, 4, 7]))
    assert estimate.mean == pytest.approx(3) and estimate.se > 0
    assert Estimate.by_document(values, torch.tensor([4, 4, 7]), 2).mean == pytest.approx(1.5)


def measured(model, chunks, shards, monkeypatch, **settings):
    monkeypatch.setattr(bit_information, "held_out", lambda *_: iter(chunks))
    context = SimpleNamespace(
        model=model, shards=shards, data=TextData(), settings=Evaluation(**settings), device=CPU,
        evaluation=SimpleNamespace(), details=SimpleNamespace(),
    )  # fmt: skip
    assert bit_information.applies(context)
    bit_information.measure(context)
    return context.evaluation, context.details


def test_an_encoder_that_says_nothing_has_no_bit_to_show(make_model, chunks, shards, monkeypatch):
    model = make_model().eval()
    with torch.no_grad():
        model.latent.readout.weight.zero_()
    evaluation, details = measured(model, chunks, shards, monkeypatch)
    assert details.bits == []
    assert [excess.bits for excess in details.persistence] == [0] * 17
    assert list(evaluation.persistence) == [0, 1, 2, 4, 8, 16]


@rejects(
    "evaluate/bit_information.py",
    "least = LEAST * config.latent_capacity / config.latent_bits",
    "least = LEAST",
    "bits of a shared z idle by the measure of one per token",
)
def test_a_bit_of_a_z_for_many_tokens_is_not_idle_for_its_few_bits_a_token(
    make_model, chunks, shards, monkeypatch
):
    """A z for 16 tokens may tell as much as sixteen of one token each, a 16th of it a token."""
    monkeypatch.setattr(bit_information, "LEAST", 0.2)
    for per, shown in (("token", 3), ("sequence", 3)):
        model = make_model(latent={"per": per}, context=16).eval()
        with torch.no_grad():
            model.latent.readout.weight.mul_(100)
        _, details = measured(model, chunks, shards, monkeypatch)
        assert len(details.bits) == shown, per
    monkeypatch.setattr(bit_information, "LEAST", 10.0)
    assert not measured(model, chunks, shards, monkeypatch)[1].bits


def test_an_encoder_that_names_the_token_has_its_information(rng, shards, monkeypatch):
    """Bit h of z is bit h of the token that is read: of 8 equally likely ones, 3 bits at lag 0."""
    tokens = torch.randint(8, (60, 17), generator=rng)
    chunks = [Chunk(i, 0, row.numpy()) for i, row in enumerate(tokens)]
    model = SimpleNamespace(
        latent=SimpleNamespace(recurrent=False),
        prior_logits=lambda *_: None,
        encode=lambda tokens, *_: 30 * (2.0 * (tokens[..., None] >> BIT & 1) - 1),
        config=SimpleNamespace(context=16, latent_bits=3, latent_capacity=3),
        positions=lambda *_: None,
        lower=lambda tokens, _: tokens,
        span_starts=lambda *_: None,
    )
    evaluation, details = measured(model, chunks, shards, monkeypatch)
    at_0, at_1 = evaluation.persistence[0], evaluation.persistence[1]
    assert at_0.bits == pytest.approx(3, abs=0.05)
    assert at_1.bits == pytest.approx(0, abs=4 * at_1.se)
    assert at_0 == details.persistence[0]
    for bit in details.bits:
        assert bit.read.bits == pytest.approx(1, abs=0.02)
        for value, shown in ((1, bit.set), (0, bit.unset)):
            assert {int(c.token) >> bit.bit & 1 for c in shown} == {value}


BIT = torch.arange(3)


@pytest.mark.parametrize(
    ("latent_bits", "data", "tokens"), [(0, TextData(), 9), (3, TextData(), 0)]
)
def test_it_is_left_out_of_baselines_and_where_it_is_turned_off(
    make_model, latent_bits, data, tokens
):
    context = SimpleNamespace(
        model=make_model(latent_bits=latent_bits), data=data, settings=Evaluation(bit_tokens=tokens)
    )
    assert not bit_information.applies(context)
    on = SimpleNamespace(model=make_model(), data=ProcessData("coin"), settings=Evaluation())
    assert not bit_information.applies(on)
