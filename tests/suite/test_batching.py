"""Requests in batches: none is lost, none too large, and noise belongs to a prompt alone."""

import torch
from hypothesis import given, strategies as st

from pipelines.common.rng_streams import Purpose
from pipelines.suite.batching import (
    Opening,
    Question,
    batches_of_openings,
    batches_of_questions,
    grouped_by_prompt,
    latent_noise,
    left_padded,
    padded,
)
from pipelines.suite.decoding import Decoding
from tests.support.mutants import rejects

lengths = st.integers(1, 30)
questions = st.lists(st.tuples(lengths, st.lists(lengths, min_size=1, max_size=5)), max_size=20)


@given(questions, st.integers(1, 300))
def test_batches_hold_every_question_once_within_their_tokens(shapes, tokens):
    asked = [
        Question((i,) * prompt, {(j,) * a: [0] for j, a in enumerate(answers)})
        for i, (prompt, answers) in enumerate(shapes)
    ]
    batches = list(batches_of_questions(asked, tokens))
    assert sorted(q.prompt[0] for batch in batches for q in batch) == list(range(len(asked)))
    for batch in batches:
        prompts, _ = left_padded([q.prompt for q in batch])
        answers, _ = padded([a for q in batch for a in q.answers])
        assert prompts.numel() + answers.numel() <= tokens or len(batch) == 1


@given(st.lists(st.tuples(lengths, st.sampled_from([0, 5, 40])), max_size=20), st.integers(1, 300))
def test_batches_hold_every_opening_once_and_one_way_of_decoding(shapes, tokens):
    openings = [
        Opening((i,) * prompt, Decoding((), 0.0, new), 0) for i, (prompt, new) in enumerate(shapes)
    ]
    batches = list(batches_of_openings(openings, tokens))
    assert sorted(o.prompt[0] for b in batches for o in b) == list(range(len(openings)))
    for batch in batches:
        assert len({opening.decoding for opening in batch}) == 1
        longest = max(len(opening.prompt) for opening in batch)
        assert len(batch) * (longest + batch[0].decoding.new) <= tokens or len(batch) == 1


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


def test_padding_stands_on_its_side():
    ids, padding = left_padded([(5, 6), (7,)])
    assert ids.tolist() == [[5, 6], [0, 7]] and padding.tolist() == [0, 1]
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
