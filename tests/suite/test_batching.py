"""Requests in batches: none is lost, none too large, and noise belongs to a prompt alone."""

import struct
from hashlib import sha256
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, strategies as st

from pipelines.common.rng_streams import Purpose, philox, stream_seed
from pipelines.host.errors import UserError
from pipelines.suite.batching import (
    Decoding,
    Opening,
    Question,
    batches_of_openings,
    batches_of_questions,
    digest,
    grouped_by_prompt,
    latent_noise,
    left_padded,
    padded,
    token_generator,
)
from tests.support.mutants import rejects

lengths = st.integers(1, 30)
questions = st.lists(st.tuples(lengths, st.lists(lengths, min_size=1, max_size=5)), max_size=20)


@example([(3, [2]), (2, [2])], 10)  # they fill a batch
@example([(3, [2]), (2, [2])], 9)
@example([(3, [2, 1]), (3, [4])], 18)
@example([(3, [2, 1]), (3, [4])], 17)
@given(questions, st.integers(1, 300))
def test_batches_hold_every_question_once_as_many_as_fit_the_longest_first(shapes, tokens):
    asked = [
        Question((i,) * prompt, {(j,) * a: [0] for j, a in enumerate(answers)})
        for i, (prompt, answers) in enumerate(shapes)
    ]
    batches = list(batches_of_questions(asked, tokens))
    order = [question for batch in batches for question in batch]
    assert sorted(q.prompt[0] for q in order) == list(range(len(asked)))
    sizes = [(len(q.prompt), q.longest) for q in order]
    assert sizes == sorted(sizes, reverse=True)

    def size(batch):
        prompts, _ = left_padded([q.prompt for q in batch])
        answers, _ = padded([a for q in batch for a in q.answers])
        return prompts.numel() + answers.numel()

    assert all(size(batch) <= tokens or len(batch) == 1 for batch in batches)
    assert all(size([*batch, after[0]]) > tokens for batch, after in pairwise(batches))


@example([(3, 5), (2, 5), (1, 5)], 16)  # two fill a batch
@example([(3, 5), (2, 5), (1, 5)], 15)
@given(st.lists(st.tuples(lengths, st.sampled_from([0, 5, 40])), max_size=20), st.integers(1, 300))
def test_batches_hold_every_opening_once_and_one_way_of_decoding(shapes, tokens):
    openings = [
        Opening((i,) * prompt, Decoding((), 0.0, new, False), 0)
        for i, (prompt, new) in enumerate(shapes)
    ]
    batches = list(islice(batches_of_openings(openings, tokens), len(openings) + 1))
    assert sorted(o.prompt[0] for b in batches for o in b) == list(range(len(openings)))
    for batch in batches:
        assert len({opening.decoding for opening in batch}) == 1
        row = len(batch[0].prompt) + batch[0].decoding.new
        assert max(len(opening.prompt) for opening in batch) == len(batch[0].prompt)
        assert len(batch) * row <= tokens or len(batch) == 1
    for batch, after in pairwise(batches):
        row = len(batch[0].prompt) + batch[0].decoding.new
        assert (len(batch) + 1) * row > tokens or after[0].decoding != batch[0].decoding


@rejects("batching.grouped_by_prompt: ids[«-room:→:room»]", "a prompt cut at its end")
def test_a_prompt_keeps_its_end_and_requests_of_one_prompt_are_one_question():
    """The last token of an answer is not read, so that context + 1 of them fit."""
    pairs = [([*range(9)], [5, 6]), ([3, 4, 5], [7]), ([*range(2, 9)], [5, 6]), ([3, 4, 5], [7])]
    requests = [(("", ""), *pair) for pair in pairs]
    questions, truncated = grouped_by_prompt(requests, context=8)
    assert [(question.prompt, question.answers) for question in questions] == [
        ((*range(2, 9),), {(5, 6): [0, 2]}),
        ((3, 4, 5), {(7,): [1, 3]}),
    ]
    assert truncated == 1


@pytest.mark.parametrize("n", [0, 4])
def test_an_answer_has_from_one_token_to_as_many_as_the_context(n):
    """Of a prompt that leaves no room only the last token stays."""
    before, text = "".join(map(chr, range(100, 150))), "".join(map(chr, range(200, 250)))
    words = (
        f"{text[:40]!r} to a prompt that ends in {before[10:]!r} has {n} tokens; .* from 1 to 3$"
    )
    with pytest.raises(UserError, match=words):
        grouped_by_prompt([((before, text), [5, 6, 7], [1] * n)], context=3)
    (question,), truncated = grouped_by_prompt([((before, text), [5, 6, 7], [1] * 3)], context=3)
    assert (question.prompt, truncated) == ((7,), 1)


def test_padding_stands_on_its_side():
    ids, padding = left_padded([(5, 6), (7,), (8,)])
    assert ids.tolist() == [[5, 6], [0, 7], [0, 8]] and padding.tolist() == [0, 1, 1]
    assert left_padded([(5, 6), (7, 8)])[1] is None
    ids, found = padded([(5,), (6, 7)])
    assert ids.tolist() == [[5, 0], [6, 7]] and found.tolist() == [1, 2]


def noise(*prompts, new=4, samples=3, seed=0, purpose=Purpose.ANSWERS, repeats=None):
    return latent_noise(prompts, new, samples, 5, seed, purpose, repeats)


def test_noise_belongs_to_the_prompt():
    """Neither to its place, nor to the padding, nor to how much is asked after it."""
    a, b = (1, 2, 3), (4, 5)
    both = noise(a, b)
    assert both.shape == (3, 2, 7, 5) and both.ge(0).all() and both.lt(1).all()
    assert both[:, 1:, :1].eq(0).all(), "padding"
    assert torch.equal(both[:, :1], noise(a)) and torch.equal(both[:, 1:, 1:], noise(b))
    assert torch.equal(noise(a, new=2), noise(a)[:, :, :5])
    assert torch.equal(noise(a, a)[:, 0], noise(a, a)[:, 1])
    assert torch.equal(noise(a), noise(a, repeats=[0]))


def test_a_prompt_and_its_repeats_have_the_streams_of_its_hash():
    """Two for each repeat: one of the prompt, one of what follows. Other bits change all scores."""
    prompt = (1, 2, 300)
    key = int.from_bytes(sha256(struct.pack("<3q", *prompt)).digest()[:8], "little") // 2
    assert digest(prompt) == key
    for repeat in (0, 3):
        parts = [
            philox(7, Purpose.ANSWERS, key, 2 * repeat + part).random((n, 2, 5), np.float32)
            for part, n in enumerate((3, 4))
        ]
        expected = np.concatenate(parts).swapaxes(0, 1)[:, None]
        found = latent_noise([prompt], 4, 2, 5, 7, Purpose.ANSWERS, [repeat])
        assert np.array_equal(found.numpy(), expected)
    for repeat in range(4):
        opening = Opening(prompt, Decoding((), 0.8, 4, repeat > 1), repeat)
        assert opening.z == (0, 0, 2, 3)[repeat]
        expected = stream_seed(7, Purpose.GENERATION, digest((*prompt, repeat)) % 2**32)
        assert token_generator(opening, 7).initial_seed() == expected


def test_noise_is_drawn_once():
    drawn = [
        noise((1, 2, 3)),
        noise((1, 2, 4)),
        noise((1, 2)),
        noise((1, 2, 3), seed=1),
        noise((1, 2, 3), purpose=Purpose.GENERATION),
        noise((1, 2, 3), repeats=[1]),
    ]
    values = torch.cat([d.flatten() for d in drawn])
    assert len(values.unique()) == len(values)
