"""pass@k: the probability that one of k sampled answers to a prompt is right."""

from collections.abc import Sequence
from math import comb

import torch
from torch import Tensor


def pass_at_k(samples: int, right: Sequence[int], k: int) -> Tensor:
    """Unbiased estimate of pass@k from n = ``samples`` answers to each prompt, of which
    ``right`` = c are right: 1 − C(n − c, k) / C(n, k), float64, one per prompt; k in 1 … n.

    C(n − c, k) / C(n, k) is the share of the sets of k of the n answers in which none is right
    (Chen et al. 2021, Evaluating large language models trained on code, eq. 1). The similar
    1 − (1 − c/n)^k is too small on average.
    """
    sets = comb(samples, k)  # exact, however many
    return torch.tensor([1 - comb(samples - c, k) / sets for c in right], dtype=torch.float64)
