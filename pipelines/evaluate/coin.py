"""P(next flip is a one) at each flip of a few held-out sequences: exactly, given the coin's hidden
side, and by the model, without z or with several.
"""

from typing import Any

import torch
from torch import Tensor

from ftmodel.inference.passes import from_prior
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.synthetic import coin_flip
from pipelines.artifacts.results import CoinSequence
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import ProcessData
from pipelines.evaluate.label import labelled_rows
from pipelines.evaluate.measurement import Context

DRAWS = 4  # of z for each sequence, from the encoder and from the prior


def applies(context: Context) -> bool:
    return context.data.source == "coin" and context.model.prefix is None


@torch.inference_mode()
def measure(context: Context) -> None:
    """Measure the top, upper-quartile and median sequences by travel of the exact probability."""
    model, device = context.model, context.device
    assert isinstance(context.data, ProcessData)
    rows, sides = labelled_rows(context.shards, context.data)
    exact = coin_flip.predictive(rows)
    ranked = exact.diff(dim=1).abs().sum(1).argsort(descending=True)
    chosen = ranked[[0, len(ranked) // 4, len(ranked) // 2]]
    rng = generator(context.settings.seed, Purpose.COIN)
    length, width = model.config.context, model.config.latent_bits
    of_prior = torch.rand(DRAWS, length, width, generator=rng).to(device)
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
            copies = inputs.expand(DRAWS, -1)
            noise = torch.rand(DRAWS, length, width, generator=rng).to(device)
            sequence.encoder_z = to_list(ones(model, model(copies, noise=noise).hidden))
            sequence.prior_z = to_list(ones(model, from_prior(model, copies, of_prior).hidden))
        context.details.coin.append(sequence)


def ones(model: FreeTransformer, hidden: Tensor) -> Tensor:
    """P(next flip is a one) (B, T) from hidden (B, T, D)."""
    return model.logits(hidden).float().softmax(-1)[..., coin_flip.ONE].cpu()


def to_list(values: Tensor) -> Any:
    """Values as lists for JSON, with four decimals."""
    return values.double().mul(1e4).round().div(1e4).tolist()
