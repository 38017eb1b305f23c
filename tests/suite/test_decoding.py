"""What a task's settings ask for, and when a text has ended."""

import pytest
import torch

from pipelines.host.errors import UserError
from pipelines.suite.batching import Decoding, Ending, read_settings

DRAWN = {"do_sample": True, "temperature": 0.8}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Decoding((), 0.0, 256, False)),
        ({"until": "a", "max_gen_toks": 3}, Decoding(("a",), 0.0, 3, False)),
        ({"do_sample": True}, Decoding((), 1.0, 256, True)),
        (DRAWN, Decoding((), 0.8, 256, True)),
        (DRAWN | {"fresh_z": False}, Decoding((), 0.8, 256, False)),
        ({"do_sample": False, "temperature": 0.8}, Decoding((), 0.0, 256, False)),
        ({"fresh_z": True, "top_k": 5, "top_p": 0.5}, Decoding((), 0.0, 256, True)),
        ({"max_gen_toks": 998}, Decoding((), 0.0, 998, False)),
        ({"max_gen_toks": 999}, Decoding((), 0.0, 499, False)),
    ],
)
def test_a_tasks_settings_are_read(settings, expected):
    """In a context of 999 tokens."""
    assert read_settings(settings, 999) == expected


@pytest.mark.parametrize(
    ("name", "neutral"), [("top_k", 0), ("top_p", 1), ("num_beams", 1), ("repetition_penalty", 1)]
)
def test_settings_without_effect_are_taken_and_others_refused(name, neutral):
    for value in (neutral, None):
        assert read_settings(DRAWN | {name: value}, 999).temperature == 0.8
    for value in (neutral - 1, neutral + 1):
        with pytest.raises(UserError, match=f"{name}: {value} is not supported"):
            read_settings(DRAWN | {name: value}, 999)


def test_a_text_ends_where_a_stop_string_does_wherever_its_tokens_part_it():
    """Each row's tokens up to the one that ends it, and one more."""
    bytes_of = [b"", b"a", b"b", b"ab", b"xa", b"x"]
    rows = [[3, 5, 5, 5], [5, 1, 2, 5], [1, 5, 4, 2], [5, 0, 3, 3], [2, 1, 5, 2]]
    ending = Ending(len(rows), ["ab", "bbbb"], 0, bytes_of)
    tokens = torch.tensor(rows)
    ended = [ending(tokens[:, : n + 1]).tolist() for n in range(4)]
    assert [*zip(*ended, strict=True)] == [
        (True, True, True, True),
        (False, False, True, True),
        (False, False, False, True),
        (False, True, True, True),
        (False, False, False, False),
    ]
    assert ending.texts == [b"ab", b"xab", b"axxab", b"x", b"baxb"]


def test_without_stop_strings_a_text_ends_with_the_end_of_text_alone():
    ending = Ending(2, [], 0, [b"", b"a"])
    assert ending(torch.tensor([[1], [0]])).tolist() == [False, True]
