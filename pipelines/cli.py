"""The command line: `ftlab <command> …` is `python -m pipelines.<command> …`.

What --help says of a command is the docstring of its module, read without importing it: torch alone
takes seconds to import.
"""

import ast
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from pipelines.common import errors
from pipelines.common.arguments import (
    COUNT,
    SEED,
    argument,
    choices,
    entries,
    jobs,
    listed,
    not_negative,
    not_negative_share,
    option,
    out_folder,
    overrides,
    positive,
    share,
    under,
)
from pipelines.common.atomic_files import ROOT
from pipelines.common.errors import UserError
from pipelines.common.shell_paths import check_compile, check_ray, compiler_path, ray_path

WIDE = {"max_content_width": 100}
# what not every command needs, by the extra of pyproject.toml that installs it
EXTRAS = {
    **{"grpc": "cluster", "ray": "cluster", "lm_eval": "suite"},
    **{"gguf": "export", "transformers": "export"},
}


MEASUREMENTS = listed("perf.__main__", "PARTS")
PARTS = listed("perf.gpu.__main__", "PARTS")
RUN = argument("name", "A run of params.yaml.", entries("runs"), metavar="RUN")
DATASET = argument("name", "An entry of data in params.yaml.", entries("data"))
COMMANDS: dict[str, tuple[str, list[click.Parameter]]] = {  # the module with `main`, what it takes
    "compose": ("pipelines.compose", [overrides("experiment")]),
    "repro": (
        "pipelines.repro",
        [
            overrides("experiment"),
            option(
                "--wait/--no-wait",
                default=True,
                help="Wait while another is at work here, or end with the name of it.",
            ),
            option(
                "--jobs",
                type=jobs,
                metavar="N",
                help="Stages side by side: a number, or `ray` for as many as fit into the cluster; "
                "by default as many as pay.",
            ),
        ],
    ),
    "plan": (
        "pipelines.plan",
        [
            overrides("experiment"),
            option(
                "--flops",
                type=positive,
                default="989e12",
                metavar="FLOP/S",
                help="Peak FLOP/s of a GPU (H100).",
            ),
            option(
                "--mfu",
                type=share,
                metavar="SHARE",
                default=0.4,
                help="The share of it that is reached.",
            ),
            option("--memory", type=positive, default=80, metavar="GIB", help="GiB of a GPU."),
            option(
                "--price",
                type=positive,
                metavar="MONEY",
                help="Of a GPU for an hour, in any currency.",
            ),
            option("--json", "as_json", is_flag=True, help="Figures in full, for programs."),
            option(
                "--weak-scaling", metavar="RUN", help="Speed of this run on 1 to 256 GPUs instead."
            ),
            option(
                "--nvlink",
                type=positive,
                default=360,
                metavar="GB/S",
                help="What a GPU sends within its node.",
            ),
            option(
                "--network",
                type=positive,
                default=40,
                metavar="GB/S",
                help="What a GPU sends to other nodes.",
            ),
            option("--per-node", type=COUNT, default=8, help="GPUs of a node."),
            option("--latency", type=not_negative, default=2, metavar="µS", help="Of a hop."),
            option(
                "--overlap",
                type=not_negative_share,
                default=0.8,
                metavar="SHARE",
                help="Fraction of communication that overlaps with computation.",
            ),
        ],
    ),
    "doctor": ("pipelines.doctor", []),
    "inputs": ("pipelines.inputs", []),
    "data": ("pipelines.data.build", [DATASET]),
    "tokenize": ("pipelines.tokenize.build", [DATASET]),
    "train": ("pipelines.train.stage", [RUN]),
    "evaluate": ("pipelines.evaluate.stage", [RUN]),
    "suite": (
        "pipelines.suite.stage",
        [argument("name", "Of params.yaml's suite_runs.", entries("suite_runs"), metavar="RUN")],
    ),
    "report": ("pipelines.report.page", []),
    "sample": (
        "pipelines.sample",
        [
            argument("run", "A run of params.yaml that has been trained.", entries("runs")),
            option(
                "--z",
                type=click.Choice(["fresh", "pinned"]),
                default="fresh",
                help="A z for each sequence, or one for each group.",
            ),
            option(
                "--prompt",
                help="By default 'def ' on text, 'K>' on the target task, on another process the "
                "first symbol of a held-out sequence.",
            ),
            option("--groups", type=COUNT, default=2, help="Groups of sequences."),
            option("--size", type=COUNT, default=5, help="Sequences in a group."),
            option(
                "--new",
                type=COUNT,
                help="New tokens; by default what the context holds, on text at most 128.",
            ),
            option(
                "--temperature",
                type=not_negative,
                default=1,
                metavar="NUMBER",
                help="Divides the logits; 0 takes the most probable token.",
            ),
            option("--seed", type=SEED, default=0, help="Of the sampling."),
        ],
    ),
    "sweep": ("pipelines.sweep.tune", [overrides("sweep")]),
    "fetch": (
        "pipelines.fetch",
        [argument("suites", "suite=<name> of conf/suite/.", choices("suite"), nargs=-1)],
    ),
    "keep": (
        "pipelines.keep",
        [
            argument("folder", "Where it is kept.", type=click.Path(), required=False),
            option("--register", is_flag=True, help="The best arm, in MLflow's model registry."),
            option(
                "--section",
                multiple=True,
                metavar="NAME",
                help="A section of the report, in place of Figure 4; may be repeated.",
            ),
        ],
    ),
    "pretrained": (
        "pipelines.pretrained",
        [argument("name", "The model.", type=click.Choice(["smollm2_135m"]), metavar="MODEL")],
    ),
    "export": (
        "pipelines.export.build",
        [
            argument("run", "A run of params.yaml that has been trained.", entries("runs")),
            option(
                "--to",
                type=click.Choice(["hf", "gguf"]),
                required=True,
                help="hf: a folder for Hugging Face's transformers; gguf: a file for llama.cpp.",
            ),
            option("--tokens", type=COUNT, help="Of a smaller budget; by default the whole run."),
            option("--out", type=click.Path(), metavar="PATH", help="It must not exist yet."),
            option(
                "--mlflow", is_flag=True, help="Add it to MLflow's entry of the checkpoint, too."
            ),
        ],
    ),
    "plots": ("pipelines.plots", []),
    "tracking": ("pipelines.tracking.__main__", []),
    "ui": (
        "pipelines.ui",
        [option("--port", type=click.IntRange(1, 65535), default=5000, help="On this machine.")],
    ),
    "job": (
        "pipelines.job",
        [
            argument("folder", "An absolute path that all nodes share.", type=click.Path()),
            argument("command", "After --: what to run there.", nargs=-1, type=click.UNPROCESSED),
        ],
    ),
    "perf": (
        "perf.__main__",
        [
            argument("names", "Measurements; all unless named.", MEASUREMENTS, nargs=-1),
            option("--turns", type=COUNT, default=5, help="A figure is the median of so many."),
            option("--quick", is_flag=True, help="Tiny shapes: does it run?"),
            out_folder("bench"),
        ],
    ),
    "scores": (
        "perf.scores",
        [
            argument("names", "Benchmarks of suite paper; all unless named.", nargs=-1),
            option(
                "--reference",
                type=COUNT,
                metavar="N",
                help="Compare likelihoods of N documents of each with float64's instead.",
            ),
            out_folder("bench"),
        ],
    ),
    "gpu": (
        "perf.gpu.__main__",
        [
            argument("names", "Parts; all that are left unless named.", PARTS, nargs=-1),
            option(
                "--minutes",
                type=positive,
                default=50,
                help="For all of it; ten are enough for the targets and a short slice.",
            ),
            option("--rehearse", is_flag=True, help="At toy size on a CPU: does it run?"),
            out_folder("bench/gpu"),
        ],
    ),
}


def docstring(module: str) -> str:
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def refuse_paths(name: str) -> None:
    """Raise UserError at once, not after seconds of imports, where no worker or compiler starts."""
    if name not in ("train", "evaluate", "suite", "sweep") or not (ray_path() or compiler_path()):
        return
    compute = under("compute") if name == "train" else {}
    several = compute.get("workers", 1) != 1
    if name == "sweep" or os.environ.get("RAY_ADDRESS") or several:
        check_ray()
    check_compile(compute.get("compile") is True)


class Command(click.Command):
    """A command whose help is a module's docstring as it stands; it returns the work to be done,
    for errors.run to do, not click.
    """

    def __init__(self, name: str) -> None:
        module, params = COMMANDS[name]
        settings = {**WIDE, "allow_interspersed_args": name != "job"}  # which is given a command
        super().__init__(name, params=params, help=docstring(module), context_settings=settings)
        self.callback = partial(self.work, module)

    def work(self, module: str, **given: Any) -> Callable[[], None]:
        def do() -> None:
            refuse_paths(str(self.name))
            try:
                import_module(module).main(**given)
            except ModuleNotFoundError as error:
                extra = EXTRAS.get((error.name or "").partition(".")[0])
                if extra is None:
                    raise
                raise UserError(
                    f"{error.name} is not installed: `pip install -c constraints.txt -e "
                    f"'.[{extra}]'`, or `make`, which installs everything"
                ) from None

        return do

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        with formatter.indentation():
            indent = " " * formatter.current_indent
            for line in (self.help or "").splitlines():
                formatter.write(f"{indent}{line}".rstrip() + "\n")


class Commands(click.Group):
    """All commands, each made when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return Command(name) if name in COMMANDS else None


def perform(command: click.Command, called: str, given: Sequence[str] | None = None) -> None:
    """Do what the command line, or ``given``, asks for; raises UserError for wrong usage."""
    try:
        work = command.main(given, prog_name=called, standalone_mode=False)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else called
        raise UserError(f"{error.format_message().rstrip('.')}; see {path} --help") from None
    if callable(work):  # a command: --help gives none
        work()


def quiet_bars() -> None:
    """Without a terminal, no progress bars of other libraries; before they import tqdm."""
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")


def run(name: str) -> None:
    """`python -m pipelines.<name>`."""
    module = COMMANDS[name][0]
    package = module.partition(".")[0]
    called = f"python -m {package}{'' if package == name else f'.{name}'}"
    quiet_bars()
    errors.run(partial(perform, Command(name), called))


def main() -> None:
    """`ftlab`."""
    group = Commands(
        "ftlab",
        help=(__doc__ or "").partition("\n\n")[0],
        no_args_is_help=False,
        context_settings=WIDE,
    )
    quiet_bars()
    errors.run(partial(of_this_copy, partial(perform, group, "ftlab")))


def of_this_copy(work: Callable[[], None]) -> None:
    """Raises UserError in another copy of the project, which has code of its own."""
    here = Path.cwd()
    if (here / "pipelines/cli.py").exists() and not here.samefile(ROOT):
        raise UserError(f"this ftlab belongs to {ROOT}; here, type python -m pipelines.<command>")
    sys.path.insert(0, str(ROOT))  # benchmarks and tests are not installed
    work()


if __name__ == "__main__":
    main()
