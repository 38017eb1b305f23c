"""What a model tells about the hidden cause of a process's sequence.

`measure_label`: what z says about the fair coin that decides a sequence of some processes.
`measure_coin`: P(next flip is a one) at each flip of a few held-out sequences: exactly, given the
coin's hidden side, and by the model, without z or with several. `measure_answers`: how often a
model generates the end that follows from the rest of a sequence, which is the path of a path-star
graph, whichever way it is written, or the factors of a product.
"""

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ftmodel.analysis.information import label_information, observation_information
from ftmodel.designs.sharing import at_starts
from ftmodel.inference.generate import generate
from ftmodel.inference.passes import from_prior
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.synthetic import PROCESSES, coin_flip
from pipelines.artifacts.packing import held_out, noise_of, packed, rows_at_once
from pipelines.artifacts.results import CoinSequence, Estimate, LabelFigures
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import ProcessData
from pipelines.evaluate.measurement import Context
from pipelines.host.errors import UserError

COIN_DRAWS = 4  # of z for each sequence, from the encoder and from the prior


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
def measure_label(context: Context) -> LabelFigures:
    """Measure the information about the label in z, drawn once from the encoder for each held-out
    row that is scored, and in the rows themselves: the most that any z can have.
    """
    model, data, settings = context.model, context.data, context.settings
    posterior = PROCESSES[data.source].label_posterior
    assert isinstance(data, ProcessData) and posterior is not None
    rows, labels = labelled_rows(context.shards, data)
    length, width = model.config.context, model.config.latent_bits
    bits, scored = [], []
    chunks = held_out(context.shards, length, context.scored_tokens)
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
    return LabelFigures(
        **asdict(information.best),
        whole=information.whole,
        per_bit=information.per_bit,
        text=observation_information(posterior(rows[scored])),
    )


@torch.inference_mode()
def measure_coin(context: Context) -> list[CoinSequence]:
    """Measure the top, upper-quartile and median sequences by travel of the exact probability."""
    model, device = context.model, context.device
    assert isinstance(context.data, ProcessData)
    rows, sides = labelled_rows(context.shards, context.data)
    exact = coin_flip.predictive(rows)
    ranked = exact.diff(dim=1).abs().sum(1).argsort(descending=True)
    chosen = ranked[[0, len(ranked) // 4, len(ranked) // 2]]
    rng = generator(context.settings.seed, Purpose.COIN)
    length, width = model.config.context, model.config.latent_bits
    of_prior = torch.rand(COIN_DRAWS, length, width, generator=rng).to(device)
    sequences = []
    for i in chosen.tolist():
        inputs = rows[i : i + 1, :-1].to(device)
        sequence = CoinSequence(
            flips="".join(coin_flip.SYMBOLS[t] for t in rows[i, 1:].tolist()),
            side=int(sides[i]),
            exact=to_list(exact[i]),
            given_side=float(coin_flip.probability_of_one(sides[i].double())),
        )
        if model.latent is None:
            sequence.model = to_list(ones(model, model(inputs).hidden)[0])
        else:
            copies = inputs.expand(COIN_DRAWS, -1)
            noise = torch.rand(COIN_DRAWS, length, width, generator=rng).to(device)
            sequence.encoder_z = to_list(ones(model, model(copies, noise=noise).hidden))
            sequence.prior_z = to_list(ones(model, from_prior(model, copies, of_prior).hidden))
        sequences.append(sequence)
    return sequences


def ones(model: FreeTransformer, hidden: Tensor) -> Tensor:
    """P(next flip is a one) (B, T) from hidden (B, T, D)."""
    return model.logits(hidden).float().softmax(-1)[..., coin_flip.ONE].cpu()


def to_list(values: Tensor) -> Any:
    """Values as lists for JSON, with four decimals."""
    return values.double().mul(1e4).round().div(1e4).tolist()


def measure_answers(context: Context) -> Estimate:
    """Measure how often the likeliest tokens are right, all of them, on the scored sequences."""
    model, settings = context.model, context.settings
    answer = PROCESSES[context.data.source].answer
    chunks = held_out(context.shards, model.config.context, context.scored_tokens)
    rows = torch.from_numpy(np.stack([chunk.tokens for chunk in chunks]))
    rng = generator(settings.seed, Purpose.ACCURACY)
    right = []
    for part in rows.split(rows_at_once(settings.batch_tokens, model.config.context)):
        prompt = part[:, :-answer].to(context.device)
        generated = generate(model, prompt, answer, generator=rng, temperature=0).cpu()
        right.append((generated == part).all(1).double())
    share = torch.cat(right)
    return Estimate.over_documents(share, torch.ones_like(share))
