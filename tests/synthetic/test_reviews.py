"""Reviews against their grammar: words counted, probabilities enumerated."""

from collections import Counter
from itertools import product
from math import log

import pytest
import torch

from ftmodel.synthetic import PROCESSES, reviews
from ftmodel.synthetic.reviews import ADJECTIVES, ADVERBS, NOUNS, ROW, SHAPES, SYMBOLS

SENTENCE = {  # P(sentence) but for the adjective, which has 0.8 / 4 or 0.2 / 4
    "the plot was very dull .": 1 / 3 / 8 / 4,
    "they found the hero dull .": 1 / 3 / 8,
    "what a quite dull ending .": 1 / 3 / 4 / 8,
}


def tokens(text):
    return torch.tensor([[SYMBOLS.index(word) for word in text.split()]])


def test_samples_are_of_the_grammar_and_follow_their_labels(rng):
    rows, labels = reviews.sample_labelled(2000, rng)
    assert rows.shape == (2000, ROW)
    assert reviews.exact_log_probability(rows).isfinite().all()
    assert abs(labels.double().mean() - 0.5) < 4 * 0.5 / 2000**0.5
    text = PROCESSES["reviews"].text
    for label in (0, 1):
        words = Counter(" ".join(text(row) for row in rows[labels == label]).split())
        own = sum(words[word] for word in ADJECTIVES[label])
        other = sum(words[word] for word in ADJECTIVES[1 - label])
        n = own + other
        assert n == 8 * (labels == label).sum()
        assert own / n == pytest.approx(0.8, abs=4 * 0.4 / n**0.5)
        for group, share in ((NOUNS, 1 / 8), (ADVERBS, 1 / 4)):  # neutral: alike in both kinds
            total = sum(words[word] for word in group)
            for word in group:
                assert words[word] / total == pytest.approx(share, abs=5 * 0.44 / total**0.5)


def test_log_probability_enumerates_the_label():
    text = "review: " + " ".join(f"{a} " * 2 for a in SENTENCE) + "the cast was very fine . " * 2
    neutral = [p for p in SENTENCE.values() for _ in range(2)] + [1 / 3 / 8 / 4] * 2
    own, other = (log(0.8 / 4), log(0.2 / 4))
    against = sum(map(log, neutral)) + 6 * own + 2 * other
    favour = sum(map(log, neutral)) + 6 * other + 2 * own
    expected = torch.logaddexp(torch.tensor(against), torch.tensor(favour)).item() - log(2)
    assert reviews.exact_log_probability(tokens(text)).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("favour", [0, 3, 4, 8])
def test_posterior_of_the_sentiment_is_bayes_rule(favour):
    against = ["they found the hero dull ."] * (8 - favour)
    sentences = ["the cast was very fine ."] * favour + against
    odds = 4.0 ** (2 * favour - 8)  # 0.8 to 0.2, for and against
    posterior = reviews.label_posterior(tokens("review: " + " ".join(sentences)))
    assert posterior.tolist() == pytest.approx([odds / (1 + odds)])


def test_probabilities_of_all_sentences_sum_to_one():
    every = []
    for shape in SHAPES:
        choices = {"NOUN": NOUNS, "ADVERB": ADVERBS, "ADJECTIVE": sum(ADJECTIVES, ())}
        every += product(*(choices.get(word, (word,)) for word in shape))
    rows = torch.cat([tokens("review: " + " ".join(words)) for words in every])
    assert reviews.exact_log_probability(rows).exp().sum().item() == pytest.approx(1)


@pytest.mark.parametrize(
    "sentence",
    [
        *("the dull was very dull .", "the very was very dull .", "the plot was hero dull ."),
        *("what a very plot dull .", "review: the plot was dull ."),
    ],
)
def test_what_the_grammar_cannot_say_has_no_probability(sentence):
    for text in (
        "review: " + "the plot was very dull . " * 7 + sentence,
        "the " + "the plot was very dull . " * 8,
    ):
        assert reviews.exact_log_probability(tokens(text)).item() == -torch.inf
