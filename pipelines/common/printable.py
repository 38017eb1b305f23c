"""Makes text from models, users and other programs safe for a terminal or a page."""


def printable(text: str) -> str:
    """The text with its control characters, which a terminal obeys and HTML forbids, shown as
    replacement characters; so are characters that change the direction of text.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
