"""What can be measured only where the data's process is known: generated groups of the target task,
the hidden label that z may carry, the coin flip by flip.
"""

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ftmodel.analysis.label_information import label_information, told_by
from ftmodel.inference.generate import generate
from ftmodel.inference.latent_source import FromPrior
from ftmodel.model.transformer import FreeTransformer
from ftmodel.synthetic import coin_flip
from ftmodel.synthetic.registry import PROCESSES
from ftmodel.synthetic.target_task import ARROW, LENGTH, LETTERS, decode
from pipelines.artifacts.packing import held_out, noise_of, packed
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.errors import UserError
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import ProcessData
from pipelines.config.schema import Evaluation

COIN_SEQUENCES, COIN_Z = 3, 4  # shown; draws of z for each, from the encoder and from the prior


def target_groups(
    model: FreeTransformer, settings: Evaluation, device: torch.device
) -> dict[str, list[list[str]]]:
    """Groups of generated sequences by kind: fresh z, and, where there is a z, pinned z."""
    rng = generator(settings.seed, Purpose.GROUPS)
    letters = torch.randint(len(LETTERS), (settings.groups, 1), generator=rng)
    letters = letters.repeat_interleave(settings.group_size, dim=0)
    prompt = torch.cat((letters, torch.full_like(letters, ARROW)), dim=1).to(device)
    kinds = {"fresh": 1} if model.latent is None else {"fresh": 1, "pinned": settings.group_size}
    groups = {}
    for kind, share in kinds.items():
        made = generate(model, prompt, LENGTH, generator=rng, z=FromPrior(share)).cpu()
        groups[kind] = [[decode(s) for s in g] for g in made.split(settings.group_size)]
    return groups


def labelled_rows(shards: Shards, data: ProcessData) -> tuple[Tensor, Tensor]:
    """The held-out rows (n, row) and their hidden labels (n,), drawn again as the corpus was.

    Raises UserError if that gives other rows.
    """
    draw = PROCESSES[data.source].sample_labelled
    assert draw is not None
    corpus = torch.Generator().manual_seed(data.seed)
    rows, labels = draw(data.validation_sequences, corpus)
    kept = torch.from_numpy(np.stack(list(shards.documents("validation"))))
    if not torch.equal(rows, kept):
        raise UserError(
            f"{shards.folder}: its held-out rows are not those that seed {data.seed} gives, so "
            "their labels are unknown; make the corpus again with "
            f"`dvc repro -f data@{shards.folder.name}`"
        )
    return rows, labels


@torch.inference_mode()
def label_figures(
    model: FreeTransformer,
    shards: Shards,
    data: ProcessData,
    settings: Evaluation,
    device: torch.device,
) -> dict[str, Any]:
    """What z, drawn once from the encoder for each held-out row that is scored, says of its label:
    ``bits`` and what follows are of the single bit that says most, ``whole`` of all together;
    ``text`` is how many bits the rows themselves tell of it, the most that any z can.
    """
    posterior = PROCESSES[data.source].label_posterior
    assert model.latent is not None and posterior is not None
    rows, labels = labelled_rows(shards, data)
    context, width = model.config.context, model.config.latent_bits
    bits, scored = [], []
    stream = held_out(shards, context, settings.tokens)
    for batch in packed(stream, context, max(1, settings.batch_tokens // context)):
        draw = noise_of(batch, width, settings.seed, Purpose.LABEL, device)
        inputs = batch.inputs.to(device)
        positions = model.positions(0, context, device)
        o = model.latent.encode(model.lower(inputs, positions), positions)
        bits.append((draw() < o.sigmoid()).cpu().long())
        scored += [piece.document for piece in batch.pieces]
    found = label_information(
        torch.cat(bits), labels[scored], generator(settings.seed, Purpose.PERMUTATIONS)
    )
    return {
        **asdict(found.best),
        "per_bit": found.per_bit,
        "whole": asdict(found.whole),
        "text": told_by(posterior(rows[scored])),
    }


@torch.inference_mode()
def coin_figures(
    model: FreeTransformer,
    shards: Shards,
    data: ProcessData,
    settings: Evaluation,
    device: torch.device,
) -> dict[str, Any]:
    """The probability that the next flip is a one, at each flip of a few held-out sequences:
    exactly, given the coin's hidden side, and as the model has it, with no z or with several.

    The sequences are those at the top, the upper quartile and the median of how far the exact
    probability travels.
    """
    rows, sides = labelled_rows(shards, data)
    exact = coin_flip.predictive(rows)
    ranked = exact.diff(dim=1).abs().sum(1).argsort(descending=True)
    chosen = ranked[[0, len(ranked) // 4, len(ranked) // 2]]
    rng = generator(settings.seed, Purpose.COIN)
    context, width = model.config.context, model.config.latent_bits
    prior = torch.randint(1 << width, (COIN_Z, context), generator=rng).to(device)
    sequences = []
    for i in chosen.tolist():
        flips = rows[i, 1:] == coin_flip.ONE
        inputs = rows[i : i + 1, :-1].to(device)
        shown: dict[str, Any] = {
            "flips": "".join(coin_flip.SYMBOLS[t] for t in rows[i, 1:].tolist()),
            "side": int(sides[i]),
            "ones": [0, *flips.cumsum(0).tolist()[:-1]],  # before each flip
            "exact": rounded(exact[i]),
            "given_side": float(coin_flip.probability_of_one(sides[i].double())),
        }
        if model.latent is None:
            shown["model"] = rounded(ones(model, model(inputs).hidden)[0])
        else:
            copies = inputs.expand(COIN_Z, -1)
            noise = torch.rand(COIN_Z, context, width, generator=rng).to(device)
            shown["encoder_z"] = rounded(ones(model, model(copies, noise=noise).hidden))
            shown["prior_z"] = rounded(ones(model, model(copies, codes=prior).hidden))
        sequences.append(shown)
    return {"epsilon": coin_flip.EPSILON, "sequences": sequences}


def ones(model: FreeTransformer, hidden: Tensor) -> Tensor:
    """P(next flip is a one) (B, T) of hidden (B, T, D)."""
    return model.logits(hidden).float().softmax(-1)[..., coin_flip.ONE].cpu()


def rounded(values: Tensor) -> Any:
    return values.double().mul(1e4).round().div(1e4).tolist()
