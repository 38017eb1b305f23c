"""The synthetic task: sequences of the right form and frequency, exact probabilities."""

from itertools import product
from math import exp, inf, log

import pytest
import torch
from scipy.stats import chisquare

from ftmodel.synthetic.target import (
    ALPHABET,
    decode,
    encode,
    exact_log_probability,
    sample_sequences,
    sample_with_starts,
)


def blank(letter="A", start=10, noise=()):
    """A sequence as text, its '!' at the given places of the body."""
    body = ["_"] * 64
    body[start : start + 8] = letter * 8
    for place in noise:
        body[place] = "!"
    return f"{letter}>{''.join(body)}"


def slow_log_probability(text):
    """log of (1/57) Σ_start Π_i P(character i | start), in plain Python."""
    letter, body = text[0], text[2:]
    total = 0.0
    for start in range(57):
        p = 1 / 57
        for i, c in enumerate(body):
            clean = letter if start <= i < start + 8 else "_"
            p *= 1 / 16 if c == "!" else 15 / 16 if c == clean else 0
        total += p
    return log(total) if total else -inf


@pytest.fixture
def clean(monkeypatch):
    """The task without noise, where letter and start can be read off."""
    monkeypatch.setattr("ftmodel.synthetic.target.NOISE", 0.0)


def test_starts_are_where_the_targets_are(clean, rng):
    sequences, starts = sample_with_starts(300, rng)
    for text, start in zip(map(decode, sequences), starts.tolist(), strict=True):
        assert text == blank(text[0], start)


def test_starts_and_letters_are_uniform(clean, rng):
    """By χ² over 57 starts and 26 letters."""
    sequences = sample_sequences(5700, rng)
    starts = (sequences[:, 2:] == sequences[:, :1]).long().argmax(1).bincount(minlength=57)
    letters = sequences[:, 0].bincount(minlength=26)
    assert len(starts) == 57 and len(letters) == 26
    assert chisquare(starts).pvalue > 0.001 and chisquare(letters).pvalue > 0.001


def test_one_character_in_16_is_noise_inside_and_outside_the_target(rng):
    """Within 4 standard errors; the prompt is never hit."""
    sequences = sample_sequences(4000, rng)
    bang = (sequences == ALPHABET.index("!")).double()
    error = (15 / 256 / (4000 * 64)) ** 0.5
    assert bang[:, :2].sum() == 0
    assert bang[:, 2:].mean().item() == pytest.approx(1 / 16, abs=4 * error)
    letters = (sequences[:, 2:] == sequences[:, :1]).double().sum(1)
    assert letters.mean().item() == pytest.approx(7.5, abs=4 * (8 * 15 / 256 / 4000) ** 0.5)


def test_log_probability_equals_a_slow_sum_over_starts(rng):
    """Of samples, and of targets by hand: at both ends, hidden, and among nothing but noise."""
    texts = [decode(s) for s in sample_sequences(50, rng)]
    assert all(slow_log_probability(text) > -inf for text in texts)
    texts += [blank("Z", 0), blank("Q", 56, noise=(0, 63)), blank(noise=(9, 10, 17))]
    texts += [blank(noise=range(10, 18)), blank(noise=range(64))]
    actual = exact_log_probability(torch.stack([encode(text) for text in texts])).tolist()
    assert actual == pytest.approx([*map(slow_log_probability, texts)], abs=1e-9)


def test_probabilities_of_all_sequences_sum_to_one(monkeypatch):
    """The task shrunk to 5 characters and a target of 2: every text over four characters."""
    for name, value in {"LENGTH": 5, "TARGET": 2, "STARTS": 4}.items():
        monkeypatch.setattr(f"ftmodel.synthetic.target.{name}", value)
    texts = ["A>" + "".join(body) for body in product("AB_!", repeat=5)]
    log_p = exact_log_probability(torch.stack([encode(t) for t in texts]))
    assert sum(map(exp, log_p.tolist())) == pytest.approx(1, abs=1e-12)


WRONG = {
    "no target": "A>" + "_" * 64,
    "all target": "A>" + "A" * 64,
    "7 long": blank().replace("AAAAAAAA", "AAAAAAA_"),
    "9 long": blank().replace("AAAAAAAA_", "AAAAAAAAA"),
    "foreign": blank().replace("_", "B", 1),
    "other prompt": blank().replace("A>", "B>"),
    "no >": blank().replace(">", "!"),
    "two >": blank().replace("_", ">", 1),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_impossible_sequences_have_no_probability(text):
    assert exact_log_probability(encode(text)[None]).item() == -inf


def test_text_and_tokens_are_two_forms_of_one_thing():
    assert decode(encode(ALPHABET)) == ALPHABET
    assert encode(ALPHABET).tolist() == list(range(29))
    for text in ("a", "A B", "É"):
        with pytest.raises(ValueError):
            encode(text)
