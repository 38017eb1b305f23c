"""The adapter for the evaluation harness: what a request gets depends on no other; no answer is
read before it is asked. On baselines it equals the harness's own backend: see
tests/export/test_hugging_face.py.
"""

import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ftmodel.inference.decoder import bf16_products
from ftmodel.inference.generate import generate, sample_token
from ftmodel.inference.passes import with_codes
from pipelines.common.rng_streams import Purpose, philox
from pipelines.config.schema import Scoring, Weights
from pipelines.host.errors import UserError
from pipelines.suite.batching import digest
from tests.support.arrivals import arrives
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
)
from tests.support.corpora import write_shards
from tests.support.mutants import rejects


def test_an_answer_that_melts_into_its_context_is_encoded_alone(make_lm):
    lm = make_lm()
    context, answer = "answ", "er"
    assert len(lm.tok_encode(context + answer)) <= len(lm.tok_encode(context))
    (alone,) = lm.tokens.encode_batch([answer.encode()])
    pairs = [(context, answer), (f"a{END}", f"{END} b")]
    melted, (pair, prompt, answer) = lm.encoded(pairs)
    assert melted == (pairs[0], lm.tok_encode(context), alone) and pair == pairs[1]
    assert prompt[0] == lm.eot_token_id, "in a text it is text"
    assert lm.eot_token_id not in [*prompt[1:], *answer]


KINDS = {"baseline": {"latent_bits": 0}, "free": {"latent_bits": 3}, "prefix": {"prefix": 2}}
each_kind = pytest.mark.parametrize("kind", KINDS)


@rejects("FreeTransformerLM.__init__: «noise_source→latent»", "a single prefix", case="prefix")
@rejects("batching.latent_noise: «digest(prompt)→row»", "z of a prompt by its place in the batch")
@rejects(
    "batching.latent_noise: «→samples, »target.shape[1]«, samples→», bits), "
    "np.float32)«→.swapaxes(0, 1)»",
    "z of answers by how long the longest of the batch is",
)
@each_kind
def test_scores_do_not_depend_on_company(make_lm, kind):
    """Batches of one prompt or of many, any order, any other requests; each alone, unpadded."""
    pairs = some_pairs(60)
    model = make_lm(**KINDS[kind]).model
    expected = log_likelihoods(make_lm(model), pairs)
    texts = [pair[0] for pair in pairs[::6]]
    sums = rolling(make_lm(model), texts)
    shuffled = random.Random(3).sample(range(60), 60)
    for lm in (make_lm(model, batch_tokens=1), make_lm(model, batch_tokens=100_000)):
        found = log_likelihoods(lm, pairs)
        assert [v for v, _ in found] == near([v for v, _ in expected])
        reordered = log_likelihoods(lm, [pairs[i] for i in shuffled])
        assert [v for v, _ in reordered] == near([found[i][0] for i in shuffled])
        assert rolling(lm, texts[::-1]) == near(sums[::-1])
        assert lm.mc_error.keys() == ({*pairs} if kind != "baseline" else set())
    for i in range(0, 60, 5):
        alone = log_likelihoods(make_lm(model), [pairs[i]])
        assert alone[0][0] == near(expected[i][0])
        assert alone[0][1] == expected[i][1]


@arrives("suite", "seed")
def test_the_seed_decides_z(make_lm):
    model = make_lm().model
    pairs, texts = some_pairs(20), ["It was the best of times", "of times"]
    for ask, questions in ((log_likelihoods, pairs), (rolling, texts)):
        first, again, other = (ask(make_lm(model, seed=s), questions) for s in (0, 0, 1))
        assert first == again
        assert all(a != b for a, b in zip(first, other, strict=True))


@arrives("suite", "scoring samples")
def test_one_sample_of_marginal_is_the_papers_procedure(make_lm):
    model = make_lm().model
    pairs, texts = some_pairs(20), ["It was the best of times"]
    one = make_lm(model, samples=1)
    paper = make_lm(model, samples=9, scoring=Scoring.posterior_prompt)
    assert log_likelihoods(one, pairs) == log_likelihoods(paper, pairs)
    assert rolling(one, texts) == rolling(paper, texts)
    assert one.mc_error == paper.mc_error == {}
    two = make_lm(model, samples=2)
    log_likelihoods(two, pairs)
    assert two.mc_error.keys() == {*pairs}


def test_the_error_of_sampling_z_shrinks_with_samples_and_is_of_this_task_alone(make_lm):
    model = make_lm().model
    pairs = [("Question: what is the answer?", " seven"), ("the", " quick brown fox")]
    few, many = make_lm(model, samples=4), make_lm(model, samples=32)
    for lm in (few, many):
        log_likelihoods(lm, pairs)
        assert list(lm.mc_error) == pairs
    assert all(0 < many.mc_error[pair] < few.mc_error[pair] for pair in pairs)
    many.start_task()
    assert many.mc_error == {} and many.truncated == 0


@rejects("FreeTransformerLM.bounded: «→0 and »digest", "the same noise for all windows")
def test_each_window_of_a_text_has_noise_of_its_own(make_lm, monkeypatch):
    def record(model, inputs, targets, samples, draw, ids):
        assert samples == 4
        noise, n = draw(), int(ids.max())
        for i in range(1, n + 1):
            read = inputs[ids == i], targets[ids == i][-1:]
            key = digest(tuple(torch.cat(read).tolist()))
            stream = philox(0, Purpose.ANSWERS, key, 2)  # 0 and 1 are those of a prompt
            expected = stream.random(noise[ids == i].shape, np.float32)
            assert np.array_equal(noise[ids == i].numpy(), expected)
            drawn.add(key)
        rows.append(len(inputs))
        return torch.zeros(n, dtype=torch.float64)

    monkeypatch.setattr("pipelines.suite.lm.nll_bound", record)
    for tokens, most in ((1, 1), (3 * CONTEXT - 1, 2)):
        drawn, rows = set(), []
        rolling(make_lm(samples=4, batch_tokens=tokens), [TEXT * 5, "Another text.", "And more, "])
        assert len(drawn) > 4 and max(rows) == most


def test_rolling_of_a_free_transformer_is_over_windows_of_the_whole_context(make_lm):
    """The bound is the likelihood itself where z says nothing."""
    lm = make_lm(samples=2)
    torch.nn.init.zeros_(lm.model.latent.post_sampler)
    ids = torch.tensor(lm.tok_encode(TEXT))
    assert len(ids) > 1.5 * CONTEXT
    expected = 0.0
    for start in range(0, len(ids) - 1, CONTEXT):
        window = ids[start : start + CONTEXT + 1]
        inputs = window[None, :-1]
        hidden = with_codes(lm.model, inputs, torch.zeros_like(inputs)).hidden[0]
        nats = F.cross_entropy(lm.model.logits(hidden), window[1:], reduction="sum")
        expected -= nats.item()
    assert rolling(lm, [TEXT]) == near([expected])


def test_a_baseline_reads_each_token_once_and_the_last_window_after_as_many_as_fit(
    make_lm, monkeypatch
):
    def record(requests):
        windows.extend(request[1:] for request in requests)
        return [(10.0**i, False) for i in range(len(requests))]

    windows, lm = [], make_lm(latent_bits=0)
    lm.max_length = 4
    monkeypatch.setattr(lm, "scored", record)
    assert lm.exact([[*range(10)], [*range(20, 25)]]) == [111, 11_000]
    end = lm.eot_token_id
    assert windows == [
        ([end], [0, 1, 2, 3]), ([3], [4, 5, 6, 7]), ([5, 6, 7], [8, 9]),
        ([end], [20, 21, 22, 23]), ([20, 21, 22, 23], [24]),
    ]  # fmt: skip


SENTENCE = "The quick dog: Größe, 7 foxes."


@pytest.fixture
def speller(make_model, tokenizer):
    """A model that continues any prompt ending in a token of the sentence by the rest of it."""
    ids = [*tokenizer.encode_batch([SENTENCE.encode()])[0], tokenizer.end_of_text]
    assert len(set(ids)) == len(ids), "a token twice would have two successors"
    shape = dict(latent_bits=0, d_model=512, ffn_width=48, context=CONTEXT, n_layers=2)
    model = make_model(vocab_size=tokenizer.vocab_size, tied=False, **shape)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("output.weight", "down.weight")):
                parameter.zero_()
        model.embedding.weight.copy_(torch.eye(tokenizer.vocab_size, 512))
        model.norm.weight.fill_(1)
        model.readout.weight.zero_()
        for before, after in pairwise(ids):
            model.readout.weight[after, before] = 1
    return adapter(model, tokenizer)


@rejects("Ending.__call__: ~self.ended«→ | True»", "an ended text grows")
def test_a_continuation_ends_at_the_first_stop_string_or_with_its_tokens(speller):
    prompts = ["The", "a The", "b c d The"]
    for until, expected in (
        ([], " quick dog: Größe, 7 foxes."),
        ([":"], " quick dog"),
        (":", " quick dog"),
        ([",", "dog"], " quick "),
        (["k d"], " quic"),
        (["öß"], " quick dog: Gr"),
        ([" "], ""),
        (["", "x"], " quick dog: Größe, 7 fo"),
        (["xx", "."], " quick dog: Größe, 7 foxes"),
    ):
        assert continuations(speller, prompts, until=until) == [expected] * 3
    made = continuations(speller, ["The quick dog", "The"], until=[",,", "e,"])
    assert made == [": Größ", " quick dog: Größ"]
    two = speller.tokens.decode(speller.tok_encode(SENTENCE)[2:4]).decode()
    half = " quick dog: Größe, 7 foxes."  # of the context, at most, is new
    for new, expected in ((0, ""), (2, two), (10**6, half)):
        assert continuations(speller, ["The"], max_gen_toks=new) == [expected]


def test_a_model_is_not_asked_for_what_comes_after_a_stop_string(speller, monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(1)
        return sample_token(*arguments)

    monkeypatch.setattr("ftmodel.inference.generate.sample_token", counted)
    continuations(speller, ["The", "a The"], until=["qu"], max_gen_toks=20)
    ids = speller.tok_encode(SENTENCE)
    text = [speller.tokens.decode(ids[2 : 2 + n]) for n in range(1, 9)]
    assert len(calls) == 1 + next(i for i, made in enumerate(text) if b"qu" in made)


@arrives("suite", "weights")
def test_text_is_generated_with_the_weights_asked_for(make_lm, monkeypatch):
    if not bf16_products():
        pytest.skip("this CPU does not multiply bfloat16")
    given = []

    def generate_and_note(model, *arguments, rounded, **settings):
        given.append(rounded)
        return generate(model, *arguments, rounded=rounded, **settings)

    monkeypatch.setattr("pipelines.suite.lm.generate", generate_and_note)
    for weights in Weights:
        lm = make_lm(latent_bits=0, weights=weights)
        continuations(lm, ["The"], until=["qu"], max_gen_toks=2)
    assert given == [None, lm.rounded] and lm.rounded.model is lm.model


@arrives("suite", "weights")
def test_weights_that_the_processor_does_not_multiply_are_refused(make_lm, monkeypatch):
    monkeypatch.setattr("ftmodel.inference.decoder.bf16_products", lambda: False)
    with pytest.raises(UserError, match=r"^suite\.weights: bf16: it needs .* AVX512-BF16 or AMX$"):
        make_lm(weights=Weights.bf16)


@each_kind
def test_samples_are_the_same_whatever_the_batch_and_repeats_differ(make_lm, kind, monkeypatch):
    lm = make_lm(**KINDS[kind])
    prompts = ["the quick", "It was the best of times, it was", "a", "the quick"]
    settings = dict(do_sample=True, temperature=0.8, max_gen_toks=10, top_k=0, top_p=1.0)
    found = continuations(lm, prompts, **settings)
    assert found[0] != found[3], "a repeat is another sample"
    with monkeypatch.context() as patch:  # numbered from 0, which decides its noise
        numbers = lambda _, batch: [f"{opening.repeat}" for opening in batch]  # noqa: E731
        patch.setattr(type(lm), "continued", numbers)
        assert continuations(lm, prompts, **settings) == ["0", "0", "0", "1"]
        assert continuations(lm, prompts) == ["0"] * 4, "where nothing varies all are one"
    assert found == continuations(make_lm(lm.model, batch_tokens=1), prompts, **settings)
    backwards = continuations(make_lm(lm.model, batch_tokens=40), prompts[2::-1], **settings)
    assert backwards == found[2::-1]
    other = continuations(make_lm(lm.model, seed=1), prompts, **settings)
    assert all(a != b for a, b in zip(found, other, strict=True))
    greedy = continuations(lm, prompts, max_gen_toks=10)
    assert greedy[0] == greedy[3] and greedy != found
    if kind == "baseline":
        assert continuations(lm, prompts, **settings | {"temperature": 1e-5}) == greedy


def test_what_was_cut_is_counted_and_is_the_beginning(make_lm, monkeypatch):
    lm = make_lm(latent_bits=0)
    long = TEXT[:300]
    log_likelihoods(lm, [(long, " a"), (long, " a"), ("a", " b"), (long, " quick")])
    assert lm.truncated == 3
    lm.start_task()
    prompts = []
    with monkeypatch.context() as patch:
        patch.setattr(
            lm, "continued", lambda batch: [prompts.append(o.prompt) or "" for o in batch]
        )
        continuations(lm, [long, "a"], max_gen_toks=10)
        assert prompts == [(*lm.tok_encode(long)[10 - CONTEXT :],), (*lm.tok_encode("a"),)]
        fits = lm.tok_encode("the quick")
        continuations(lm, [long[1:], "the quick"], max_gen_toks=CONTEXT - len(fits))
    assert (prompts[-1], lm.truncated) == ((*fits,), 2)
    lm.start_task()
    rolling(lm, [long])
    assert lm.truncated == 0


def test_a_user_reads_one_line(make_lm, tmp_path):
    lm = make_lm()
    with pytest.raises(UserError, match=r"'Why\?' has 0 tokens"):
        log_likelihoods(lm, [("a", " b"), ("Why?", "")])
    with pytest.raises(UserError, match="from 1 to 48"):
        log_likelihoods(lm, [("a", TEXT)])
    for kwargs in ({"top_k": 5}, {"num_beams": 2}, {"max_length": 9}, {"temperature": -1.0}):
        (name, value), *_ = kwargs.items()
        with pytest.raises(UserError, match=f"{name}: {value} is not supported"):
            continuations(lm, ["a"], **({"do_sample": True, "temperature": 1.0} | kwargs))
    continuations(lm, ["a"], do_sample=False, top_k=5, max_gen_toks=1)
    with pytest.raises(UserError, match="without an end of text"):
        write_shards(tmp_path, [[0, 1, 2, 3]], row=2).byte_tokenizer()
