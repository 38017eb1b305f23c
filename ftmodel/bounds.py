"""Honest measurement: what a model says about held-out sequences, per sequence, in nats.

A Free Transformer's cross-entropy under the posterior z is not a language-model loss: z has read
the tokens that it helps to predict. What may be compared with a baseline's NLL are upper bounds on
the true NLL −log p(x) = −log Σ_z p(x | z) p(z):

    ELBO     E_q [−log p(x | z)] + KL(q(z | x) ‖ p(z))                  (Kingma & Welling 2014)
    IWAE-K   −log (1/K) Σ_k p(x | z_k) p(z_k) / q(z_k | x),  z_k ~ q     (Burda et al. 2016, eq. 8)
    prior    −log (1/K) Σ_k p(x | z_k),  z_k ~ uniform              (loose: shown, not compared)

Shapes: B sequences, T tokens, H latent bits, K samples.
"""

from dataclasses import dataclass
from math import log, nan

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from ftmodel.mapper import binary_mapper
from ftmodel.objective import LN2, kl_per_bit
from ftmodel.transformer import FreeTransformer


@dataclass
class Bounds:
    """Nats per sequence, (B,) each; kl_bits (B, H) is the KL of each bit, summed over tokens."""

    ce: Tensor  # reconstruction: mean over K posterior samples of −log p(x | z)
    kl: Tensor
    elbo: Tensor
    iwae: Tensor
    prior: Tensor
    kl_bits: Tensor


def mean_and_error(totals: Tensor, sizes: Tensor | None = None) -> dict[str, float]:
    """Σ totals / Σ sizes and its standard error, of n documents with a total and a size (n,) each;
    sizes are 1 where none are given. The error is NaN for n = 1.

    It is the ratio estimator's, from the spread of the residuals (delta method; Cochran 1977,
    Sampling Techniques, § 6.3): documents are independent of each other, their tokens are not.
    """
    totals = totals.double()
    sizes = torch.ones_like(totals) if sizes is None else sizes.double()
    n, mean = len(totals), totals.sum() / sizes.sum()
    if n == 1:
        return {"mean": mean.item(), "se": nan}
    residuals = totals - mean * sizes
    error = (n / (n - 1) * residuals.square().sum()).sqrt() / sizes.sum()
    return {"mean": mean.item(), "se": error.item()}


def sequence_nll(model: FreeTransformer, hidden: Tensor, targets: Tensor) -> Tensor:
    """−log p of targets (B, T), nats, summed over tokens: (B,)."""
    logits = model.logits(hidden).float()
    return (
        F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        .view_as(targets)
        .sum(-1)
    )


@torch.inference_mode()
def exact_nll(model: FreeTransformer, inputs: Tensor, targets: Tensor) -> Tensor:
    """NLL (B,) in nats of a baseline, for which it is exact."""
    return sequence_nll(model, model(inputs).hidden, targets)


@torch.inference_mode()
def latent_bounds(
    model: FreeTransformer, inputs: Tensor, targets: Tensor, samples: int, generator: Generator
) -> Bounds:
    """Bounds on the NLL of ``targets`` (B, T), the successors of ``inputs``, with K = samples.

    The lower half and the encoder run once; the upper half once per sample of z.
    """
    assert model.latent is not None, "a baseline has no bound: its NLL is exact"
    b, t = inputs.shape
    h = model.config.latent_bits
    rope = model.rope(0, t, inputs.device)
    x = model.lower(inputs, rope)
    o = model.latent.encode(x, rope)  # (B, T, H)
    table = model.latent.post_sampler
    log_prior = -t * h * LN2
    ce, log_w, prior = [], [], []
    for _ in range(samples):
        noise = torch.rand(o.shape, generator=generator).to(o.device)
        r, _codes = binary_mapper(o, noise, table)
        nll = sequence_nll(model, model.upper(x, x + r, rope), targets)
        ones = noise < o.sigmoid()
        log_q = torch.where(ones, F.logsigmoid(o), F.logsigmoid(-o)).sum((1, 2))
        ce.append(nll)
        log_w.append(-nll + log_prior - log_q)
        codes = torch.randint(1 << h, (b, t), generator=generator).to(o.device)
        prior.append(-sequence_nll(model, model.upper(x, x + table[codes], rope), targets))
    kl_bits = kl_per_bit(o).sum(1)
    mean_ce = torch.stack(ce).mean(0)
    kl = kl_bits.sum(-1)
    return Bounds(
        ce=mean_ce,
        kl=kl,
        elbo=mean_ce + kl,
        iwae=log(samples) - torch.stack(log_w).logsumexp(0),
        prior=log(samples) - torch.stack(prior).logsumexp(0),
        kl_bits=kl_bits,
    )
