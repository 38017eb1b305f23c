"""Cuts long texts into pieces that are encoded one by one, on several cores."""

import re
from collections.abc import Iterator

PIECE = 1 << 16  # bytes, at most
LINE_END = re.compile(rb"[0-9A-Za-z](?=\n)")


def pieces(text: bytes) -> Iterator[bytes]:
    """Cut a text into pieces of at most PIECE bytes, if possible where a line ends in a letter or
    digit. The usual patterns cut there as well, so the tokens equal the whole text's.
    """
    start = 0
    while len(text) - start > PIECE:
        stop = start + PIECE
        line_ends = [match.end() for match in LINE_END.finditer(text, start, stop)]
        if line_ends:
            stop = line_ends[-1]
        else:
            while stop > start + PIECE - 3 and text[stop] & 0xC0 == 0x80:  # inside a character
                stop -= 1
        yield text[start:stop]
        start = stop
    if start < len(text):
        yield text[start:]
