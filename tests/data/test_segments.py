"""Where segments end, and what is read next of a source."""

from types import SimpleNamespace

import numpy as np
import pytest

from pipelines.config.data import TextData
from pipelines.data import segments
from pipelines.data.segments import Group, Reading, Segment, Stream, read_group


class Texts:
    """A source in memory."""

    def __init__(self, *texts):
        self.texts, self.place = texts, 0

    def seek(self, position):
        self.place = position

    def position(self):
        return self.place

    def documents(self):
        for number in range(self.place, len(self.texts)):
            self.place = number + 1
            yield str(number), self.texts[number]


def sizes(made):
    return [(segment.documents, segment.bytes, segment.last) for segment in made]


def test_a_segment_ends_where_its_bytes_or_the_limit_are_reached(tmp_path, monkeypatch):
    source = Texts(b"1234", b"56", b"", b"7", b"890", b"a", b"bcd", b"e", b"f")
    group = Group(source, str(tmp_path / "group"), [])
    whole = [*read_group(Reading(group, "a", 100, 0, 0.5))]
    assert sizes(whole) == [(9, 16, True)]
    assert np.all(np.diff(np.load(whole[0].file("hashes.npy"))[0].astype(float)) > 0)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 6)
    source.seek(0)
    group.segments += read_group(Reading(group, "a", 7, 0, 0.5))
    assert sizes(group.segments) == [(2, 6, False), (2, 1, False)]
    assert not group.ended
    group.segments += read_group(Reading(group, "a", 4, 0, 0.5))
    group.segments += read_group(Reading(group, "a", 1, 0, 0.5))
    group.segments += read_group(Reading(group, "a", 2, 0, 0.5))
    assert sizes(group.segments[2:]) == [(2, 4, False), (1, 3, False), (2, 2, False)]
    group.segments += read_group(Reading(group, "a", 1, 0, 0.5))
    assert sizes(group.segments[5:]) == [(0, 0, True)]
    assert group.ended and group.bytes == 16


def stream(*groups):
    """Of groups that have a size, and have bytes read; the first of them may have ended."""
    made = Stream(
        "a",
        SimpleNamespace(groups=lambda: iter(())),
        TextData(parts={}, validation_share=0.5, seed=7),
        None,
    )
    for size, read_bytes, ended in groups:
        parts = [Segment("", 1, read_bytes - 1, 0, False), Segment("", 1, 1, 0, ended)]
        made.known.append(Group(SimpleNamespace(size=size), "", parts if read_bytes else []))
    return made


@pytest.mark.parametrize(
    ("groups", "goal", "expected"),
    [
        # by 10 bytes for one of a file that has ended
        ([(10, 100, True), (10, 0, False), (5, 0, False), (9, 0, False)], 350, [250, 150, 100]),
        ([(10, 100, True), (10, 30, False), (9, 0, False)], 201, [71, 1]),
        ([(10, 100, True), (10, 30, False), (9, 0, False)], 200, [70]),
        ([(10, 100, True), (1, 30, False), (9, 0, False)], 132, [2, 1]),
        ([(0, 2, True), (1, 18, True), (2, 0, False), (2, 0, False)], 57, [37]),
        ([(0, 2, True), (1, 18, True), (2, 0, False), (2, 0, False)], 61, [41, 1]),
        # by 4 bytes where none has ended
        ([(10, 0, False), (10, 0, False), (10, 0, False)], 80, [80, 40]),
        # all that a source of unknown size may have
        ([(None, 0, False), (10, 0, False)], 1000, [1000]),
    ],
)
def test_as_much_is_read_as_seems_to_be_left(groups, goal, expected):
    readings = [*stream(*groups).readings(goal)]
    assert [reading.limit for reading in readings] == expected
    assert all((r.part, r.seed, r.validation_share) == ("a", 7, 0.5) for r in readings)


def test_segments_behind_a_gap_wait():
    made = stream((1, 5, True), (1, 6, False), (1, 7, True))
    assert [segment.bytes for segment in made.segments()] == [4, 1, 5, 1]
    assert not made.ended() and stream((1, 5, True)).ended()
