"""Reads YAML files that people write: as UTF-8, and none that would break a parser."""

from pathlib import Path

import yaml

from pipelines.common.errors import UserError

MAX_LEVELS = 50  # Python's recursion limit is some hundred
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path) -> str:
    """The text of a YAML file. Raises UserError with the file and what is wrong if it cannot be
    read, is not UTF-8 or YAML, is too deep or contains itself; FileNotFoundError if there is none.
    """
    try:
        text = path.read_bytes().decode()
        check_nesting(text)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}: line {line}: not UTF-8 ({error.reason})") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
    return text


def check_nesting(text: str) -> None:
    """Raise ValueError if YAML is nested too deeply, or without end by an anchor in itself."""
    open_anchors: list[str | None] = []
    for event in yaml.parse(text, Loader=LOADER):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.CollectionStartEvent):
            open_anchors.append(event.anchor)
            if len(open_anchors) > MAX_LEVELS:
                raise ValueError(f"line {line}: nested more than {MAX_LEVELS} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            open_anchors.pop()
        elif isinstance(event, yaml.AliasEvent) and event.anchor in open_anchors:
            raise ValueError(f"line {line}: *{event.anchor} contains itself")
