"""What one z a sequence tells of held-out text: clusters by document, and interpolation."""

import torch
from torch import Generator, Tensor

from ftmodel.analysis.code_clusters import agreement, mean_over_pairs, with_permutations
from ftmodel.analysis.permutation import permutation_test
from ftmodel.inference.interpolation import SHARES, PathCE, interpolated_ce, posterior
from ftmodel.inference.swap import another_document
from ftmodel.model.latent_design import Per
from ftmodel.model.objective import LN2
from pipelines.artifacts.estimate import Estimate
from pipelines.artifacts.latent_results import Clusters, PathStep, SequenceZ
from pipelines.artifacts.packing import held_out
from pipelines.common.rng_streams import Purpose, generator
from pipelines.evaluate import swap
from pipelines.evaluate.measurement import Context


def applies(context: Context) -> bool:
    return swap.applies(context) and context.model.config.latent.per == Per.sequence


def measure(context: Context) -> None:
    model, settings = context.model, context.settings
    chunks = list(held_out(context.shards, model.config.context, settings.swap_tokens))
    texts, documents = swap.of_one_length(chunks)
    if len(documents.unique()) < 2:
        return
    rng = generator(settings.seed, Purpose.SEQUENCE_Z)
    rows = max(1, settings.batch_tokens // model.config.context)
    texts = texts.to(context.device)
    q = posterior(model, texts, rows)
    donor = another_document(documents, rng)
    ce = interpolated_ce(model, texts, q, donor, rows, rng)
    context.evaluation.sequence_z = SequenceZ(
        texts=len(texts),
        clusters=clusters(q, documents, rng),
        half=half_bits_recovery(ce.end, ce.end, documents[donor]),
        half_random=half_bits_recovery(ce.end_random, ce.end, documents[donor]),
        path=path(ce, documents, donor, texts.shape[1] - 1),
    )


def clusters(q: Tensor, documents: Tensor, rng: Generator) -> Clusters | None:
    """None if no document has two texts."""
    _, document, sizes = documents.unique(return_inverse=True, return_counts=True)
    if sizes.max() < 2:
        return None
    agree = agreement(q)
    same, different = (
        Estimate(*mean_over_pairs(agree, document, alike)) for alike in (True, False)
    )
    chance = permutation_test(with_permutations(agree, document, rng))
    return Clusters(same, different, chance.null_95, chance.p_value)


def path(ce: PathCE, documents: Tensor, donor: Tensor, length: int) -> list[PathStep]:
    steps = []
    for i, share in enumerate(SHARES):
        start, random = (
            Estimate.by_document(nats[i] / LN2, documents, length) for nats in (ce.start, ce.random)
        )
        end = Estimate.by_document(ce.end[i] / LN2, documents[donor], length)
        steps.append(PathStep(share=share, start=start, end=end, random=random))
    return steps


def half_bits_recovery(path: Tensor, end: Tensor, documents: Tensor) -> Estimate | None:
    """What texts of ``documents`` (S,) gain on half of ``path`` over what they gain at the end of
    ``end``, which leads to their z: nats (F, S). None unless the latter is more than two standard
    errors.
    """
    _, index, counts = documents.unique(return_inverse=True, return_counts=True)
    half, whole = (
        torch.zeros(len(counts), dtype=torch.float64).index_add_(0, index, end[0] - nats)
        for nats in (path[len(SHARES) // 2], end[-1])
    )
    gain = Estimate.over_documents(whole)
    return Estimate.over_documents(half, whole) if gain.mean > 2 * gain.se else None
