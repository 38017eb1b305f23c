"""What one z per sequence tells about held-out text: clusters by document, and interpolation."""

from torch import Generator, Tensor

from ftmodel.analysis.code_clusters import agreement, mean_over_pairs, with_permutations
from ftmodel.analysis.permutation import permutation_test
from ftmodel.designs.hinge import LN2
from ftmodel.inference.interpolation import SHARES, PathCE, interpolated_ce, posterior
from ftmodel.inference.swap import another_document
from pipelines.artifacts.estimate import Estimate, document_sums
from pipelines.artifacts.latent_results import Clusters, PathStep, SequenceZ
from pipelines.artifacts.packing import held_out, rows_at_once
from pipelines.common.rng_streams import Purpose, generator
from pipelines.evaluate import swap
from pipelines.evaluate.measurement import Context


def applies(context: Context) -> bool:
    return swap.applies(context) and context.model.config.latent.one_code


def measure(context: Context) -> None:
    model, settings = context.model, context.settings
    chunks = list(held_out(context.shards, model.config.context, settings.swap_tokens))
    texts, documents = swap.of_one_length(chunks)
    if len(documents.unique()) < 2:
        return
    rng = generator(settings.seed, Purpose.SEQUENCE_Z)
    rows = rows_at_once(settings.batch_tokens, model.config.context)
    texts = texts.to(context.device)
    q = posterior(model, texts, rows)
    donor = another_document(documents, rng)
    ce = interpolated_ce(model, texts, q, donor, rows, rng)
    of_end, length = documents[donor], texts.shape[1] - 1
    own, other = (
        Estimate.by_document(nats[0] / LN2, of, length)
        for nats, of in ((ce.start, documents), (ce.end, of_end))
    )
    context.evaluation.sequence_z = SequenceZ(
        texts=len(texts),
        own=own,
        other=other,
        path=path(ce, documents, of_end, length),
        clusters=clusters(q, documents, rng),
        **half_of_the_bits(ce, of_end),
    )


def clusters(q: Tensor, documents: Tensor, rng: Generator) -> Clusters | None:
    """How alike z is within and between documents; None if no document has two texts."""
    _, document, sizes = documents.unique(return_inverse=True, return_counts=True)
    if sizes.max() < 2:
        return None
    agree = agreement(q)
    same, different = (
        Estimate(*mean_over_pairs(agree, document, alike)) for alike in (True, False)
    )
    chance = permutation_test(with_permutations(agree, document, rng))
    return Clusters(same, different, chance.null_95, chance.p_value)


def path(ce: PathCE, documents: Tensor, of_end: Tensor, length: int) -> list[PathStep]:
    def change(nats: Tensor, of: Tensor, step: int) -> Estimate:
        return Estimate.by_document((nats[step] - nats[0]) / LN2, of, length)

    return [
        PathStep(
            share=share,
            start=change(ce.start, documents, step),
            end=change(ce.end, of_end, step),
            random=change(ce.random, documents, step),
        )
        for step, share in enumerate(SHARES)
        if step
    ]


def half_of_the_bits(ce: PathCE, documents: Tensor) -> dict[str, Estimate]:
    """What texts of ``documents`` (S,) gain from half of the bits of their own z, and from as many
    random bits, divided by what they gain from all. Empty unless that gain is more than two
    standard errors.
    """
    middle = len(SHARES) // 2
    half, random, whole = (
        document_sums(ce.end[0] - nats, documents)[0]
        for nats in (ce.end[middle], ce.end_random[middle], ce.end[-1])
    )
    gain = Estimate.over_documents(whole)
    if not gain.mean > 2 * gain.se:
        return {}
    gains = {"half": half, "half_random": random, "half_minus_random": half - random}
    return {name: Estimate.over_documents(part, whole) for name, part in gains.items()}
