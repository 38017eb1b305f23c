"""Print groups of generations from a trained run of the experiment in params.yaml.

python -m pipelines.sample free_k1_8 --z pinned --prompt 'F>'
"""

import argparse
import os
import sys
from itertools import groupby

import torch

from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import FromPrior
from ftmodel.synthetic.target_task import LENGTH, PROMPT
from pipelines.artifacts.checkpoint import check_vocabulary, load_model
from pipelines.artifacts.paths import checkpoint_path, tokens_folder
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common import errors
from pipelines.common.errors import UserError
from pipelines.config.load import load_stage

BLUE, GREEN, RED, FAINT, BOLD, END = (f"\033[{n}m" for n in (34, 32, 31, 2, 1, 0))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.sample", description=str(__doc__).splitlines()[0]
    )
    parser.add_argument("run", help="a run of params.yaml that has been trained")
    parser.add_argument("--z", choices=("fresh", "pinned"), help="one z a sequence, or one a group")
    parser.add_argument("--prompt", help="default: 'K>' on the target task, else 'def '")
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--size", type=int, default=5, help="sequences in a group")
    parser.add_argument("--new", type=int, help="new tokens; default: what the context holds")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in ("groups", "size", "new"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise UserError(f"--{name}: {value} must be at least 1")
    return arguments


def colour_target(sequence: str) -> str:
    """A target-task sequence with its letter bold, noise red and blanks faint."""
    letter, body = sequence[0], sequence[PROMPT:]
    colours = {letter: BOLD, "!": RED, "_": FAINT}
    runs = ((colours.get(c, ""), "".join(run)) for c, run in groupby(body))
    return sequence[:PROMPT] + "".join(f"{colour}{run}{END}" for colour, run in runs)


def main() -> None:
    arguments = parse_arguments()
    experiment = load_stage("runs", arguments.run)
    path = checkpoint_path(experiment.name, arguments.run)
    model, manifest = load_model(path)
    shards = Shards(tokens_folder(manifest.run["data"]))
    check_vocabulary(path, manifest, shards)
    is_target = shards.metadata.row_length is not None
    if model.latent is None and arguments.z == "pinned":
        raise UserError(f"{arguments.run} is a baseline: it has no z to pin")

    text = arguments.prompt or ("K>" if is_target else "def ")
    tokenizer = shards.tokenizer()
    ids = tokenizer.encode(text).ids
    if not ids or tokenizer.decode(ids) != text:
        raise UserError(f"--prompt: {text!r} cannot be written in the tokens of {shards.folder}")
    room = model.config.context - len(ids) + 1
    new = arguments.new or min(room, LENGTH if is_target else 128)
    prompt = torch.tensor(ids).expand(arguments.groups * arguments.size, -1)
    pinned = arguments.z == "pinned"
    try:
        sequences = generate(
            model,
            prompt,
            new,
            generator=torch.Generator().manual_seed(arguments.seed),
            z=FromPrior(arguments.size if pinned else 1),
            temperature=arguments.temperature,
        )
    except ValueError as error:
        raise UserError(str(error)) from None

    colour = "FORCE_COLOR" in os.environ or (sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    kind = (
        "no latent" if model.latent is None else "one z a group" if pinned else "one z a sequence"
    )
    for index, group in enumerate(sequences.split(arguments.size), 1):
        header = f"{arguments.run}, group {index}: {kind}"
        print(f"{GREEN if pinned else BLUE}{header}{END}" if colour else header)
        for row in group:
            sequence = tokenizer.decode(row.tolist(), skip_special_tokens=False)
            print(colour_target(sequence) if colour and is_target else sequence)
            if not is_target:
                print("-" * 40)
        print()


if __name__ == "__main__":
    errors.run(main)
