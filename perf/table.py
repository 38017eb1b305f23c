"""Benchmarks as a page of Markdown: what was compared, where, and a table of figures."""

from typing import Any

HEAD = "| | median (least to most) | unit | target | met |\n|---|---|---|---|---|"
MET = {None: "", True: "yes", False: "no"}


def write_table(entries: dict[str, dict[str, Any]]) -> str:
    """A section for each benchmark. Machine and versions are said where they differ from those of
    the one before.
    """
    parts = ["# Benchmarks"]
    known = None
    for name, entry in entries.items():
        parts.append(f"## {name}")
        if "failure" in entry:
            parts.append(f"Failed ({measured(entry)}):")
            parts.append(f"```\n{entry['failure'].strip()}\n```")
            continue
        if "skipped" in entry:
            parts.append(f"Skipped ({measured(entry)}): {entry['skipped']}")
            continue
        parts.append(entry["compares"].splitlines()[0])
        if (here := place(entry)) != known:
            parts.append(here)
            known = here
        parts.append(measured(entry))
        if entry["figures"]:
            parts.append("\n".join([HEAD, *map(row, entry["figures"])]))
        parts += [f"![{title}]({file})" for file, title in entry["pictures"].items()]
    return "\n\n".join(parts) + "\n"


def place(entry: dict[str, Any]) -> str:
    machine = entry["machine"]
    packages = [f"{name} {at}" for name, at in entry["versions"].items() if at != "none"]
    return (
        f"{machine['cpu']}; {machine['cores']} cores, {machine['threads']} threads; GPU: "
        f"{machine['gpu']}. Python {machine['python']}, {', '.join(packages)}."
    )


def measured(entry: dict[str, Any]) -> str:
    """When, of which code, in what time, and how busy the machine was."""
    quick = "tiny shapes, " if entry["quick"] else ""
    said = f"{entry['date']}, {quick}{entry['turns']} turns, {entry['seconds']:.0f} s"
    if entry["commit"]:
        said += f", commit {entry['commit']}"
    if "machine" in entry:
        said += f"; load {entry['machine']['load']} before, {entry['load_after']:.1f} after"
    return said


def row(figure: dict[str, Any]) -> str:
    low, high = number(figure["low"]), number(figure["high"])
    middle = number(figure["median"])
    spread = "" if low == high else f" ({low} to {high})"
    cells = (figure["name"], middle + spread, figure["unit"], figure["target"], MET[figure["met"]])
    return f"| {' | '.join(cells)} |"


def number(value: float) -> str:
    """Four digits, and those of a larger number in groups."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
