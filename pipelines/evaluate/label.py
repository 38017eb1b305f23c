"""What z tells about the hidden label, a fair coin, that decides a sequence of some processes."""

from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor

from ftmodel.analysis.label_information import label_information, observation_information
from ftmodel.designs.sharing import at_starts
from ftmodel.synthetic.registry import PROCESSES
from pipelines.artifacts.packing import held_out, noise_of, packed, rows_at_once
from pipelines.artifacts.results import LabelFigures
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.errors import UserError
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import ProcessData
from pipelines.evaluate.measurement import Context


def applies(context: Context) -> bool:
    """Whether the model has z, and the data a label that it may tell about."""
    data = context.data
    if context.model.latent is None or not isinstance(data, ProcessData):
        return False
    return PROCESSES[data.source].sample_labelled is not None


def labelled_rows(shards: Shards, data: ProcessData) -> tuple[Tensor, Tensor]:
    """Draw the held-out rows (n, row) and their hidden labels (n,) again, as the corpus was drawn.
    Raises UserError if that gives other rows.
    """
    draw = PROCESSES[data.source].sample_labelled
    assert draw is not None
    rows, labels = draw(data.validation_sequences, torch.Generator().manual_seed(data.seed))
    stored = torch.from_numpy(np.stack(list(shards.documents("validation"))))
    if not torch.equal(rows, stored):
        raise UserError(
            f"{shards.folder}: its held-out rows are not those that seed {data.seed} gives, so "
            "their labels are unknown; make the corpus again with "
            f"`dvc repro -f data@{shards.folder.name}`"
        )
    return rows, labels


@torch.inference_mode()
def measure(context: Context) -> None:
    """Measure the information about the label in z, drawn once from the encoder for each held-out
    row that is scored, and in the rows themselves: the most that any z can have.
    """
    model, data, settings = context.model, context.data, context.settings
    posterior = PROCESSES[data.source].label_posterior
    assert isinstance(data, ProcessData) and posterior is not None
    rows, labels = labelled_rows(context.shards, data)
    length, width = model.config.context, model.config.latent_bits
    bits, scored = [], []
    chunks = held_out(context.shards, length, settings.tokens)
    for batch in packed(chunks, length, rows_at_once(settings.batch_tokens, length)):
        draw = noise_of(batch, width, settings.seed, Purpose.LABEL, context.device)
        inputs = batch.inputs.to(context.device)
        at = model.positions(inputs)
        o = model.encode(inputs, model.lower(inputs, at), at)
        drawn = (draw() < o.sigmoid()).long()
        bits.append(at_starts(drawn, at.span_starts).cpu())
        scored += [chunk.document for chunk in batch.chunks]
    information = label_information(
        torch.cat(bits), labels[scored], generator(settings.seed, Purpose.PERMUTATIONS)
    )
    context.evaluation.label = LabelFigures(
        **asdict(information.best),
        whole=information.whole,
        per_bit=information.per_bit,
        text=observation_information(posterior(rows[scored])),
    )
