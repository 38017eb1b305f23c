"""What bits of z tell, as mutual information in bits: about the token some positions later, and
about a known label.

Both estimates are plug-in estimates, which are too high. For tokens, the joint distribution of a
bit and a token is counted with the encoder's probabilities of the bit; it is compared with the
estimate when each document has another's z (docs/measurement/persistence.md). For a label,
*sampled* bits are counted, as a decoder reads them, and only the excess over the estimate for
permuted labels means anything. It may be a small part of what z says about the label, because bits
are taken one at a time, or all together by a classifier that treats them as independent
(docs/measurement/label_information.md).

Shapes: n positions in C chunks of text, or n sequences of T tokens; H latent bits; m positions that
have a token at some lag, Y kinds of token, G groups of documents; F features of 0 and 1; P
permutations.
"""

from dataclasses import dataclass
from math import hypot

import torch
from torch import Generator, Tensor

from ftmodel.analysis.statistics import Chance, jackknife, permutation_test
from ftmodel.designs.hinge import LN2

TOKENS = 64  # the most frequent tokens are told apart; all others count as one kind
GROUPS = 32  # at most this many groups of documents, each left out once
CODE_PERMUTATIONS = 20  # permutations of z


@dataclass(frozen=True)
class NetInformation:
    """Mutual information in bits, less what the z of other documents seem to carry."""

    bits: float
    se: float  # over documents; NaN for a single one
    null_mean: float  # with the z of other documents; subtracted from the plug-in estimate
    null_sd: float  # over permutations


@dataclass(frozen=True)
class Encoded:
    """Chunks of text, one after the other, with the logits and the KL of each latent bit. Chunks of
    one document are neighbours.
    """

    o: Tensor  # (n, H)
    kl: Tensor  # (n, H), nats
    tokens: Tensor  # (n + C,): each chunk's tokens; its last one is only predicted
    chunk: Tensor  # (n,): 0 … C − 1
    document: Tensor  # (n,): any numbers

    def after(self, lag: int) -> tuple[Tensor, Tensor]:
        """Positions (m,) with a token ``lag`` later in their chunk, and those tokens (m,).

        Lag 0 is the token that is read at the position, lag 1 the one that is predicted there.
        """
        place = torch.arange(len(self.chunk)) + self.chunk + lag  # where that token is, (n,)
        lengths = self.chunk.bincount() + 1
        of_token = torch.arange(len(lengths)).repeat_interleave(lengths)  # its chunk, (n + C,)
        inside = place < len(self.tokens)
        inside[inside.clone()] = of_token[place[inside]] == self.chunk[inside]
        return inside.nonzero().flatten(), self.tokens[place[inside]]


def frequent(tokens: Tensor, kinds: int = TOKENS) -> Tensor:
    """Map tokens (…) to kinds: 0 … kinds − 1 for the most frequent, ``kinds`` for all others."""
    counts = tokens.flatten().bincount()
    common = counts.argsort(descending=True, stable=True)[:kinds]
    kind = torch.full_like(counts, kinds)
    kind[common] = torch.arange(len(common))
    return kind[tokens]


def soft_counts(q: Tensor, cell: Tensor, cells: int) -> Tensor:
    """Count by ``cell`` (m,): (cells, 1 + H), the number of positions, then for each bit the
    expected number where it is 1, the sum of its probabilities q (m, H).
    """
    columns = torch.cat((torch.ones_like(q[:, :1]), q), dim=1)
    return columns.new_zeros(cells, columns.shape[1]).index_add_(0, cell, columns)


def information(counts: Tensor) -> Tensor:
    """Plug-in mutual information (…, H), bits, between each bit and the token, from the counts
    (…, Y, 1 + H) of ``soft_counts``: H(b) − Σ_y p(y) H(b | y). 0 where nothing was counted.
    """
    n, ones = counts[..., :1], counts[..., 1:]
    total = n.sum(-2).clamp(min=1)
    mean = (ones.sum(-2) / total).clamp(max=1)
    conditional = (ones / n.clamp(min=1)).clamp(max=1)
    remaining = (n * entropy(conditional, 1 - conditional)).sum(-2) / total
    return (entropy(mean, 1 - mean) - remaining).clamp(min=0)


def z_of_others(document: Tensor, generator: Generator) -> Tensor:
    """Choose for each of n positions another one, whose z replaces its own: (n,). It stands at the
    same place of another document, which starts over where it is too short. ``document`` (n,) is
    0 … D − 1, in order. A single document is rotated.

    Single positions are not shuffled: the tokens of a document are alike, and so may its z be by
    chance, which is no information about tokens.
    """
    sizes = document.bincount()
    if len(sizes) == 1:
        by = torch.randint(1, max(2, len(document)), (), generator=generator)
        return torch.arange(len(document)).roll(int(by))
    starts = sizes.cumsum(0) - sizes
    cycle = torch.randperm(len(sizes), generator=generator)
    donor = torch.empty_like(cycle)
    donor[cycle] = cycle.roll(1)
    place = torch.arange(len(document)) - starts[document]
    return starts[donor][document] + place % sizes[donor][document]


def excess(plug_in: Tensor, null: Tensor, left_out: Tensor) -> NetInformation:
    """Net information: plug-in (), its ``null`` with permuted z (P,), and without a group (G,)."""
    mean, sd = null.mean().item(), null.std().item()
    error = hypot(jackknife(left_out), sd / len(null) ** 0.5)
    return NetInformation(plug_in.item() - mean, error, mean, sd)


def bit_information(
    encoded: Encoded, lag: int, generator: Generator, permutations: int = CODE_PERMUTATIONS
) -> tuple[NetInformation, list[NetInformation]] | None:
    """Net information of a position's bits about the token ``lag`` later: the sum over bits, and
    each bit's. None if no chunk is that long.
    """
    here, tokens = encoded.after(lag)
    if not len(here):
        return None
    q = encoded.o.double().sigmoid()
    kind = frequent(tokens)
    kinds = len(kind.bincount())
    _, document = encoded.document.unique(return_inverse=True)
    documents = int(document.max()) + 1
    groups = min(GROUPS, documents)
    group = (document * groups // documents)[here]
    counts = soft_counts(q[here], group * kinds + kind, groups * kinds).unflatten(0, (groups, -1))
    whole = counts.sum(0)
    plug_in, left_out = information(whole), information(whole - counts)
    null = torch.stack(
        [
            information(soft_counts(q[z_of_others(document, generator)[here]], kind, kinds))
            for _ in range(permutations)
        ]
    )
    bits = [excess(plug_in[h], null[:, h], left_out[:, h]) for h in range(q.shape[1])]
    return excess(plug_in.sum(), null.sum(1), left_out.sum(1)), bits


def most_certain(values: Tensor, document: Tensor, k: int) -> list[int]:
    """Positions of the largest values (n,), largest first: at most k, and one per document."""
    chosen: dict[int, int] = {}
    for position in values.argsort(descending=True, stable=True).tolist():
        chosen.setdefault(int(document[position]), position)
        if len(chosen) == k:
            break
    return list(chosen.values())


LABEL_PERMUTATIONS = 1000


@dataclass
class LabelInformation:
    """Information of z about the label, bits."""

    best: Chance  # the most informative bit's, against the best bit of each permutation
    whole: Chance  # for a naive Bayes prediction from the bits of all tokens
    per_bit: list[float]  # (H,)


def entropy(*probabilities: Tensor) -> Tensor:
    """Σ −p log2 p, bits, over probabilities of one shape; the result has that shape too."""
    return torch.special.entr(torch.stack(probabilities)).sum(0) / LN2


def observation_information(posterior: Tensor) -> float:
    """Information in bits of an observation about a fair binary label, from the exact posteriors
    P(label = 1 | observation), (n,), of n observations: 1 − their mean entropy. By the data
    processing inequality no function of the observation has more.
    """
    return 1 - entropy(posterior, 1 - posterior).mean().item()


def mutual_information(features: Tensor, labels: Tensor) -> Tensor:
    """Plug-in mutual information (F, P), bits, between each feature (n, F) and each label (n, P),
    all 0 or 1. Its bias is about 1 / (2 n ln 2) where the two are independent (Miller 1955).
    """
    x, y = features.double(), labels.double()
    n = len(x)
    both = x.T @ y / n  # (F, P), the frequency of 1 and 1
    p, q = x.mean(0)[:, None], y.mean(0)[None]
    joint = (both, p - both, q - both, 1 - p - q + both)
    joint_entropy = entropy(*(probability.clamp(min=0) for probability in joint))
    return (entropy(p, 1 - p) + entropy(q, 1 - q) - joint_entropy).clamp(min=0)


def bits_of_sequences(bits: Tensor) -> Tensor:
    """One value of each latent bit per sequence, (n, H), from bits (n, T, H), 0 or 1: whether it is
    1 at more tokens than on average over the sequences.

    κ is the same for every token, so what z says about a sequence is spread over its tokens. The
    threshold is the mean, which has values on both sides unless all are equal. The median has none
    above it if most sequences have the largest count, as with a bit that equals a label that is
    mostly 1.
    """
    counts = bits.sum(1).double()
    return (counts > counts.mean(0)).long()


def naive_bayes(features: Tensor, labels: Tensor) -> Tensor:
    """Predict each column of labels (n, P) from features (n, F), all 0 or 1: (n, P). Twofold
    cross-validation: the predictions for each half use counts of the other half.
    """
    x, y = features.double(), labels.double()
    predictions = torch.empty_like(y)
    fold = torch.arange(len(x)) % 2
    for half in (0, 1):
        train, test = fold != half, fold == half
        log_joint = []
        for label in (0, 1):
            member = torch.eq(y[train], label).double()
            p = (x[train].T @ member + 1) / (member.sum(0) + 2)  # (F, P), Laplace's smoothing
            zero, one = (-p).log1p(), p.log()
            log_joint.append(x[test] @ (one - zero) + zero.sum(0) + (member.mean(0)).log())
        predictions[test] = (log_joint[1] > log_joint[0]).double()
    return predictions


def label_information(
    bits: Tensor, labels: Tensor, generator: Generator, permutations: int = LABEL_PERMUTATIONS
) -> LabelInformation:
    """Information of sampled bits of z (n, T, H) about labels (n,), all 0 or 1."""
    shuffled = [
        labels[torch.randperm(len(labels), generator=generator)] for _ in range(permutations)
    ]
    columns = torch.stack([labels, *shuffled], dim=1)  # (n, 1 + P)
    single = mutual_information(bits_of_sequences(bits), columns)  # (H, 1 + P)
    features = bits.flatten(1)
    predictions = naive_bayes(features, columns)
    whole = torch.cat(
        [mutual_information(predictions[:, [i]], columns[:, [i]]) for i in range(columns.shape[1])]
    )
    return LabelInformation(
        best=permutation_test(single.max(0).values),
        whole=permutation_test(whole.flatten()),
        per_bit=single[:, 0].tolist(),
    )
