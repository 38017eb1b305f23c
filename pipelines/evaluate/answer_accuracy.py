"""How often a model generates the end that follows from the rest of a sequence: the path of a
path-star graph, whichever way it is written, or the factors of a product.
"""

import numpy as np
import torch

from ftmodel.inference.generate import generate
from ftmodel.synthetic.registry import PROCESSES
from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.packing import held_out, rows_at_once
from pipelines.common.rng_streams import Purpose, generator
from pipelines.config.data import ProcessData
from pipelines.evaluate.measurement import Context


def applies(context: Context) -> bool:
    return isinstance(context.data, ProcessData) and bool(PROCESSES[context.data.source].answer)


def measure(context: Context) -> None:
    """Measure how often the likeliest tokens are right, all of them, on the scored sequences."""
    model, settings = context.model, context.settings
    answer = PROCESSES[context.data.source].answer
    chunks = held_out(context.shards, model.config.context, settings.tokens)
    rows = torch.from_numpy(np.stack([chunk.tokens for chunk in chunks]))
    rng = generator(settings.seed, Purpose.ACCURACY)
    right = []
    for part in rows.split(rows_at_once(settings.batch_tokens, model.config.context)):
        prompt = part[:, :-answer].to(context.device)
        written = generate(model, prompt, answer, generator=rng, temperature=0).cpu()
        right.append((written == part).all(1).double())
    share = torch.cat(right)
    context.evaluation.answers_right = Estimate.over_documents(share, torch.ones_like(share))
