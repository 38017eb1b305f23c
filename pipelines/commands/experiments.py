"""List the bounds of DVC's experiments, and what was overridden in each.

    ftlab experiments

Shows the working folder, the last commit, and what `dvc exp run` has made from that commit: every
run's arm, κ, tokens, seed and held-out bound with its standard error. `with` names the settings
that differ from the experiment's file in conf/experiment/.
"""

from typing import Any

import click

from pipelines.host.command_line import COUNT, command

MAX_COLUMNS = 100
HEADER = ["", "arm", "κ, bits", "tokens", "seed", "bound, bits/token"]


@command(__doc__)
@click.option("--commits", type=COUNT, default=1, help="Number of last commits to look at.")
def main(commits: int) -> None:
    from textwrap import wrap

    from dvc.api import exp_show

    from pipelines.host.console import aligned

    groups: dict[str, list[list[str]]] = {}
    for found in exp_show(num=commits):
        revision = found["rev"]
        heading, rows = runs_of(None if revision == "workspace" else revision)
        groups[f"{found['Experiment'] or revision}: {heading}"] = rows
    header, *lines = aligned([HEADER, *(row for rows in groups.values() for row in rows)])
    print(header)
    for heading, rows in groups.items():
        print(
            *wrap(heading, MAX_COLUMNS, subsequent_indent="    ", break_on_hyphens=False), sep="\n"
        )
        for _ in rows:
            print(lines.pop(0))


def runs_of(revision: str | None) -> tuple[str, list[list[str]]]:
    """What a commit's params.yaml, or the working folder's, composes, and a row for each run."""
    from dvc.api import DVCFileSystem
    from omegaconf import OmegaConf

    from pipelines.config.compose import compose_config
    from pipelines.export.keep import differing, stated
    from pipelines.host.errors import UserError

    files = DVCFileSystem(".", rev=revision)
    try:
        params = OmegaConf.create(files.read_text("params.yaml", encoding="utf-8"))
    except FileNotFoundError:
        return "no params.yaml", []
    name = params.name
    try:
        plain = stated(compose_config([f"experiment={name}"]))
        changes = " ".join(differing(plain, stated(params)))
    except UserError:
        changes = "(conf/experiment/ has no such file)"
    rows = [row_of(files, name, key, run) for key, run in params.runs.items()]
    return f"experiment {name}" + (f" with {changes}" if changes else ""), rows


def row_of(files: Any, experiment: str, name: str, run: Any) -> list[str]:
    from pipelines.artifacts.result_files import parse_json
    from pipelines.artifacts.results import EvaluationResult
    from pipelines.artifacts.run_results import fraction

    try:
        content = files.read_bytes(f"results/{experiment}/{name}/evaluation.json")
        bound = str(parse_json(EvaluationResult, content).bits_per_token.bound)
    except FileNotFoundError:
        bound = "not here"
    kappa = "–" if run.kappa_bits is None else fraction(run.kappa_bits)
    arm = name.removesuffix(f"_s{run.seed}")
    return ["", arm, kappa, f"{run.tokens:,}", str(run.seed), bound]
