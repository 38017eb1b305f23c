"""Hooks for MkDocs (mkdocs.yml): the site has all pages of the repository, at their own paths."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md")
LINK = re.compile(r"\]\((?!\w+:)([^)#]+)")


def matching(patterns: tuple[str, ...]) -> list[str]:
    """Paths in the repository that match one of the patterns."""
    found = (path for pattern in patterns for path in sorted(ROOT.glob(pattern)))
    return [path.relative_to(ROOT).as_posix() for path in found]


def anchor(heading: str, separator: str) -> str:
    """The anchor of a heading, as GitHub names it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)


def on_config(config: MkDocsConfig) -> None:
    """Replace patterns in the navigation by the pages that no earlier line names."""
    named: set[str] = set()

    def expanded(entries: list[Any]) -> list[Any]:
        result: list[Any] = []
        for entry in entries:
            if isinstance(entry, dict):
                ((title, inner),) = entry.items()
                result.append({title: expanded(inner) if isinstance(inner, list) else inner})
            else:
                found = [path for path in matching((entry,)) if path not in named]
                named.update(found)
                result += found
        return result

    config.nav = expanded(config.nav or [])
    config.mdx_configs["toc"]["slugify"] = anchor


def on_files(files: Files, *, config: MkDocsConfig) -> None:
    """Replace docs/ by all pages, and the files that they link to."""
    for file in [file for file in files if file.src_dir == config.docs_dir]:
        files.remove(file)
    pages = matching(PAGES)
    linked = {
        target.relative_to(ROOT).as_posix()
        for page in pages
        for link in LINK.findall((ROOT / page).read_text(encoding="utf-8"))
        if (target := (ROOT / page).parent.joinpath(link).resolve()).is_file()
    }
    for path in dict.fromkeys([*pages, *sorted(linked), *config.extra["polyfills"]]):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
