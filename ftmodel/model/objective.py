"""The training loss: cross-entropy plus the hinge of the KL above κ ("free bits"), per token.

All losses are in nats per token. The cross-entropy of a Free Transformer is a *reconstruction* term
(z has seen the tokens), not a language-model loss; for that, see inference/bounds.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from ftmodel.config import ModelConfig
from ftmodel.designs.hinge import LN2, Reduce, free_bits
from ftmodel.designs.sharing import mean_over_spans
from ftmodel.kernels.cross_entropy import linear_cross_entropy
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.positions import check_like


def kl_per_bit(o: Tensor, prior: Tensor | None = None) -> Tensor:
    """KL(Bernoulli(q) ‖ Bernoulli(p)), nats, same shape as o: cross-entropy − entropy, where
    q = sigmoid(o), and p = sigmoid(``prior``), or 1/2 for None.

    The bits of z are independent: the sum over H is the KL of z to its prior (eq. 4 of the paper).
    """
    # to the bit: autograd adds up the gradient of o in the order of these terms
    log_normalizer = F.softplus(o)
    q = o.sigmoid()
    entropy = log_normalizer - o * q
    return (LN2 if prior is None else F.softplus(prior) - prior * q) - entropy


@dataclass
class Loss:
    """Scalars in nats per token, means over the tokens of a batch. For a baseline, total is ce and
    the other fields are None.
    """

    total: Tensor  # ce + beta * hinge, with a gradient of its own for a learned prior
    ce: Tensor  # cross-entropy; of a Free Transformer the reconstruction term
    kl: Tensor | None = None  # full KL to the prior, not the hinge
    hinge: Tensor | None = None  # mean of max(0, KL_t − κ), eq. 5: see designs/hinge.py
    kl_of_bits: Tensor | None = None  # (H,), each bit's part of kl, without gradients


def training_loss(
    model: FreeTransformer,
    inputs: Tensor,
    targets: Tensor,
    noise: Tensor | None = None,
    kappa_bits: float | None = None,
    documents: Tensor | None = None,
    over_workers: Reduce | None = None,
    beta: float = 1.0,
) -> Loss:
    """Loss of ``targets`` (B, T), the successors of ``inputs`` (B, T): cross-entropy + β · hinge,
    nats per token.

    Args:
        noise: (B, T, H), uniform on [0, 1), which samples z from the encoder; None for a baseline.
        kappa_bits: κ, the free bits per token; None for a baseline.
        documents: (B, T), the number of each token's document; None: each row is one document.
        over_workers: averages a tensor over data-parallel workers, for a hinge of a whole batch.
        beta: β, 1 in the paper.

    Raises:
        ValueError: shapes do not fit each other, or a Free Transformer has no noise or no κ.

    Free bits apply to the encoder. A learned prior is fitted to the whole KL, even below κ, where
    the hinge has no gradient. A recurrent prior reads the upper half's state, which depends on
    earlier codes. Through that state the KL gives the encoder a gradient even below κ, towards
    codes that make later codes predictable.
    """
    check_like("targets", targets, inputs.shape, inputs)
    at = model.positions(inputs, documents=documents)
    out = model(inputs, noise, at)
    ce = linear_cross_entropy(out.hidden.flatten(0, 1), model.readout.weight, targets.flatten())
    if out.bit_logits is None:
        return Loss(ce, ce)
    if kappa_bits is None:
        raise ValueError("kappa_bits: a Free Transformer is trained with a threshold κ, not None")
    o, prior = out.bit_logits, out.prior_logits
    of_bits = kl_per_bit(o, None if prior is None else prior.detach())  # (B, T, H)
    kl = mean_over_spans(of_bits.sum(-1), at.span_starts)  # KL_t, eq. 4
    hinge = free_bits(kl, kappa_bits, model.config.latent.free_bits, documents, over_workers)
    total = ce + beta * hinge
    if prior is not None:
        fit = kl_per_bit(o.detach(), prior).sum(-1).mean()
        total = total + (fit - fit.detach())
    return Loss(total, ce, kl.mean(), hinge, of_bits.detach().mean((0, 1)))


def kl_of_use(config: ModelConfig, kappa_bits: float) -> float:
    """The KL to expect from a latent in use, bits per token: κ, but at most the latent's capacity.
    0 under a learned prior, whose KL may stay far below κ even if z is used.
    """
    return min(kappa_bits, config.latent_capacity) if config.latent.uniform_prior else 0.0


def collapsed(kl_bits: Mapping[int, float], kappa_bits: float, steps: int) -> bool:
    """Whether the latent has gone unused for a third of a training run of ``steps``: each KL over
    some of the last ``steps`` / 3 is below κ / 10. ``kl_bits`` maps a step to the mean KL over all
    steps since the entry before, bits per token; such stretches may differ in length. False before
    a third of the run, or if κ = 0. ``kappa_bits`` comes from ``kl_of_use``.
    """
    now = max(kl_bits, default=0)
    late = [kl for step, kl in kl_bits.items() if 3 * (now - step) < steps]
    return kappa_bits > 0 and 3 * now >= steps and max(late) < kappa_bits / 10
