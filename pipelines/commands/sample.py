"""Print sequences that a trained run generates.

    ftlab sample sequence_k1_16 --z pinned --prompt 'F>'

The run is one of the experiment in params.yaml. On a terminal, or with FORCE_COLOR, the letter of
the target task is bold, noise red and blanks faint. NO_COLOR turns colours off.
"""

from typing import TYPE_CHECKING

import click

from pipelines.host.command_line import COUNT, NOT_NEGATIVE, SEED, TRAINED, command
from pipelines.host.errors import UserError, printable

if TYPE_CHECKING:
    from rich.text import Text


def coloured(sequence: str) -> "Text":
    """A target-task sequence with its letter bold, noise red and blanks faint."""
    from rich.text import Text

    from ftmodel.synthetic.target import PROMPT

    styles = {sequence[0]: "bold", "!": "red", "_": "dim"}
    return Text.assemble(sequence[:PROMPT], *((c, styles.get(c, "")) for c in sequence[PROMPT:]))


@command(__doc__)
@TRAINED
@click.option(
    "--z",
    type=click.Choice(["fresh", "pinned"]),
    default="fresh",
    help="Whether each sequence has its own z (fresh) or a group shares one (pinned).",
)
@click.option(
    "--prompt",
    help="Text to continue. Default: 'def ' on text, 'K>' on the target task, else the first "
    "symbol of a held-out sequence.",
)
@click.option("--groups", type=COUNT, default=2, help="Number of groups.")
@click.option("--size", type=COUNT, default=5, help="Sequences in each group.")
@click.option(
    "--new",
    type=COUNT,
    help="New tokens. Default: all that the context holds, at most 128 on text.",
)
@click.option(
    "--temperature",
    type=NOT_NEGATIVE,
    default=1,
    metavar="NUMBER",
    help="Temperature; 0 takes the most probable token.",
)
@click.option("--seed", type=SEED, default=0, help="Seed of the sampling.")
def main(
    run: str,
    z: str,
    prompt: str | None,
    groups: int,
    size: int,
    new: int | None,
    temperature: float,
    seed: int,
) -> None:
    import torch
    from rich.console import Console
    from rich.text import Text

    from ftmodel.inference.generate import generate
    from ftmodel.inference.latent_source import FromPrior
    from pipelines.artifacts.checkpoint import load_trained
    from pipelines.artifacts.run_spec import RunSpec
    from pipelines.config.load import load_stage

    spec = RunSpec(load_stage("runs", run), run)
    model, _, shards = load_trained(spec)
    is_target, is_process = spec.data.source == "target", shards.metadata.row_length is not None
    if model.noise_source is None and z == "pinned":
        raise UserError(f"{run} is a baseline: it has no z to pin")

    tokenizer = shards.tokenizer()
    text = prompt
    if text is None and is_process and not is_target:  # the first symbol of a held-out sequence
        text = tokenizer.decode(next(iter(shards.documents("validation")))[:1].tolist())
    elif text is None:
        text = "K>" if is_target else "def "
    ids = tokenizer.encode(text).ids
    if not ids or tokenizer.decode(ids) != text:
        raise UserError(f"--prompt: {text!r} cannot be written in the tokens of {shards.folder}")
    context = model.config.context
    room = context - len(ids) + 1
    if room < 1:
        raise UserError(f"--prompt: {len(ids)} tokens leave no room in a context of {context}")
    new = new or (room if is_process else min(room, 128))
    prompts = torch.tensor(ids).expand(groups * size, -1)
    pinned = z == "pinned"
    try:
        sequences = generate(
            model,
            prompts,
            new,
            generator=torch.Generator().manual_seed(seed),
            z=FromPrior(size if pinned else 1),
            temperature=temperature,
        )
    except ValueError as error:
        raise UserError(str(error)) from None

    console = Console(highlight=False, soft_wrap=True)
    kind = "the same z in a group" if pinned else "z drawn for each sequence"
    if model.latent is None:
        kind = kind.replace("z", "random prefix") if model.prefix else "no latent"
    elif pinned and not model.config.latent.uniform_prior:
        kind = "the same random numbers for z in a group"
    for index, group in enumerate(sequences.split(size), 1):
        header = f"{run}, group {index}: {kind}"
        console.print(Text(header, "green" if pinned else "blue"))
        for row in group:
            sequence = printable(tokenizer.decode(row.tolist(), skip_special_tokens=False))
            if is_target:
                console.print(coloured(sequence))
            else:
                print(f"{sequence}\n{'-' * 40}")  # rich would replace its tabs
        print()
