"""Text of models, users and other programs, for a terminal or a page."""


def printable(text: str) -> str:
    """The text with its control characters, which a terminal obeys and HTML forbids, shown as
    replacement characters; so are characters that turn the direction of what follows.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
