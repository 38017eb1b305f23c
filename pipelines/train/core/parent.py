"""What a run starts from: a Llama's files, or another run of the experiment."""

import json
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ftmodel.conversion.latent_start import StartLosses, begin_latent, start_losses
from ftmodel.conversion.llama import entry, load_llama, our_config
from ftmodel.model.free_transformer import FreeTransformer
from pipelines.artifacts import llama_files
from pipelines.artifacts.checkpoint import load_model, read_padding
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.rng_streams import Purpose, generator
from pipelines.host.errors import UserError

SAMPLE = 4096  # tokens that a new latent is scaled on, and the first losses are measured on
LATENT = "latent."  # begins the names of its parameters


def parent_identity(spec: RunSpec) -> dict[str, str]:
    """The name of a run's parent and the hash of its weights; {} without one. Raises UserError."""
    start = spec.run.init_from
    if not start:
        return {}
    if start.hf is not None:
        return {"hf": start.hf, "sha256": files_hash(llama_files.model_files(Path(start.hf)))}
    assert start.run is not None
    path = RunSpec(spec.experiment, start.run).checkpoint()
    if not path.exists():
        raise UserError(
            f"{path}: no checkpoint here; `dvc repro train@{start.run}` trains the parent"
        )
    return {"run": start.run, "sha256": files_hash([path])}


def files_hash(files: list[Path]) -> str:
    """Hash of the content of all files; raises OSError."""
    total = sha256()
    for path in files:
        with open(path, "rb") as file:
            total.update(file_digest(file, "sha256").digest())
    return total.hexdigest()


def copy_parent(
    model: FreeTransformer, spec: RunSpec, shards: Shards
) -> tuple[bool, dict[str, Tensor]]:
    """Copy the weights of a run's parent into ``model``; returns whether its latent is still to be
    started, and the padding of the parent's vocabulary. Raises UserError for a parent that does not
    fit.
    """
    start = spec.run.init_from
    if start.run is not None:
        path = RunSpec(spec.experiment, start.run).checkpoint()
        parent, _ = load_model(path)
        # not strict: a latent that only one of the two has is left as it is
        model.load_state_dict(parent.state_dict(), strict=False)
        return model.latent is not None and parent.latent is None, read_padding(path)
    assert start.hf is not None
    return model.latent is not None, copy_llama(model, Path(start.hf), shards)


def copy_llama(model: FreeTransformer, path: Path, shards: Shards) -> dict[str, Tensor]:
    llama, ids = llama_files.read_llama(path), shards.metadata.vocab_size
    try:
        theirs = our_config(llama.config)
        rows = entry(llama.config, "vocab_size", int)
        if rows < ids:
            raise ValueError(
                f"vocab_size: {rows}, but the tokenizer of {shards.folder} has {ids} ids"
            )
        if spelling(llama.tokenizer, ids) != spelling(shards.tokenizer(), ids):
            raise ValueError(f"its tokenizer is not that of {shards.folder}: the same ids differ")
        for name, (their, our) in theirs.decoder_differences(model.config).items():
            raise ValueError(f"its {name} is {their}, but the run's architecture says {our}")
        if model.config.context > theirs.context:
            raise ValueError(
                f"it was trained with up to {theirs.context} positions, but the run's "
                f"architecture has a context of {model.config.context}"
            )
        return load_llama(model, llama.weights, rows)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def spelling(tokenizer: Tokenizer, ids: int) -> tuple[dict[str, int], Any]:
    """What fixes a text's ids up to ``ids``, except how the text is split into words. Some files
    name the padding of a vocabulary, too.
    """
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary = {token: i for token, i in tokenizer.get_vocab().items() if i < ids}
    return vocabulary, model.get("merges")


def start_from_parent(
    model: FreeTransformer, spec: RunSpec, shards: Shards
) -> tuple[StartLosses, dict[str, Tensor]]:
    """Give ``model`` the weights of the run's parent, and a quiet start to a latent that the parent
    lacks. Returns the losses of that start on the first windows of the training data, and the
    padding of the parent's vocabulary. Raises UserError.
    """
    run, config = spec.run, model.config
    latent_begins, padding = copy_parent(model, spec, shards)
    windows = shards.windows("train", config.context)
    count = min(len(windows), max(1, SAMPLE // config.context))
    rows = windows.batch(torch.arange(count))
    documents = None
    if config.document_mask:
        assert shards.metadata.end_of_text is not None, "rows are documents already"
        documents = rows[:, :-1].eq(shards.metadata.end_of_text).cumsum(1)
    if latent_begins:
        assert run.kappa_bits is not None
        begin_latent(
            model,
            rows[:, :-1],
            run.kappa_bits,
            run.init_from.latent_rms,
            run.init_from.copy_encoder,
            documents,
        )
    noise: Tensor | None = None
    if config.latent_bits:
        shape = (2, count, config.context, config.latent_bits)
        noise = torch.rand(shape, generator=generator(run.seed, Purpose.START))
    return start_losses(model, rows, noise, documents), padding


def copied(model: FreeTransformer, spec: RunSpec) -> set[str]:
    """Names of the parameters that come from the run's parent."""
    start = spec.run.init_from
    if not start:
        return set()
    names = {name for name, _ in model.named_parameters()}
    parent = spec.experiment.runs.get(start.run or "")
    if parent is None or parent.kappa_bits is None:
        names = {name for name in names if not name.startswith(LATENT)}
    return names
