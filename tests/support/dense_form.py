"""The training loss as one writes it down: every code of every z, span by span, by autograd."""

from dataclasses import replace
from math import log

import torch
from torch import Tensor
from torch.nn import functional as F

from ftmodel.config import LatentDesign
from ftmodel.mapper import code_probabilities
from ftmodel.model.free_transformer import FreeTransformer
from ftmodel.model.objective import Loss


def per_token(model):
    """One z for each token, else the model that ``model`` is, and its weights."""
    design = replace(model.config.latent, per="token", every=None)
    twin = FreeTransformer(replace(model.config, latent=design), model.readout.out_features)
    twin.load_state_dict(model.state_dict())
    return twin.train(model.training)


def spans(design: LatentDesign, documents: Tensor) -> list[tuple[int, Tensor]]:
    """Row and positions of the tokens of each z, given ``documents`` (B, T)."""
    width = {"token": 1, "every": design.every}.get(design.per, documents.shape[1])
    return [
        (row, span)
        for row, ids in enumerate(documents)
        for document in ids.unique()
        for span in (ids == document).nonzero()[:, 0].split(width)
    ]


def rows_of_codes(latent, design: LatentDesign) -> tuple[Tensor, Tensor]:
    """The bits (2^H, H) of every code, and its embedding (2^H, D)."""
    bits = latent.readout.out_features
    ones = (torch.arange(1 << bits)[:, None] >> torch.arange(bits) & 1).double()
    table = latent.post_sampler
    return ones, (2 * ones - 1).type_as(table) @ table if design.map == "linear" else table


def embedded(latent, design: LatentDesign, o: Tensor, noise: Tensor) -> Tensor:
    """r (D,) of the z that ``noise`` (H,) samples from ``o`` (H,), with the design's gradient: that
    of all codes' probabilities G, or through the sampled code's log G or G alone.
    """
    q = o.sigmoid()
    g = code_probabilities(q)
    ones, table = rows_of_codes(latent, design)
    code = int((ones == (noise < q)).all(-1).nonzero())
    if design.gradient == "all_codes":
        return (F.one_hot(torch.tensor(code), len(g)) + g - g.detach()) @ table
    weight = g[code] if design.gradient == "sampled_code" else g[code].log()
    return table[code] + table[code].detach() * (weight - weight.detach())


def hinge_of(kl: Tensor, kappa: float, over: str, documents: Tensor) -> Tensor:
    """Of KL (B, T), κ and a value in nats, by ``LatentDesign.free_bits``."""
    if over == "sequence":
        means = [kl[i][ids == d].mean() for i, ids in enumerate(documents) for d in ids]
        return (torch.stack(means) - kappa).relu().mean()
    mean = {"token": kl, "position": kl.mean(0), "batch": kl.mean()}[over]
    return (mean - kappa).relu().mean()


def bernoulli_kl(o: Tensor, logits: Tensor) -> Tensor:
    q, p = o.sigmoid(), logits.sigmoid()
    return (q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()).sum()


def dense_loss(twin, design, inputs, targets, noise, kappa_bits, documents=None) -> Loss:
    """Of a model of ``design``, whose ``per_token`` is ``twin``; else as ``training_loss``."""
    latent, (rows, length) = twin.latent, inputs.shape
    ids = torch.zeros(rows, length) if documents is None else documents
    where = twin.positions(inputs, documents=documents)
    x = twin.lower(inputs, where)
    o = twin.encode(inputs, x, where)
    each = [(torch.tensor(row), span, int(span[0])) for row, span in spans(design, ids)]
    r = torch.zeros_like(x)
    for row, span, at in each:
        r = r.index_put((row, span), embedded(latent, design, o[row, at], noise[row, at]))
    hidden = twin.upper(x, r, where)
    kl, fit = torch.zeros(rows, length), torch.zeros(rows, length)
    for row, span, at in each:
        follows = at > 0 and ids[row, at - 1] == ids[row, at]
        before = hidden[row, at - 1] if follows else torch.zeros_like(x[0, 0])
        p = latent.prior(x[row, at], before)
        p, q = torch.zeros_like(o[row, at]) if p is None else p, o[row, at]
        kl = kl.index_put((row, span), bernoulli_kl(q, p.detach()) / len(span))
        fit = fit.index_put((row, span), bernoulli_kl(q.detach(), p) / len(span))
    hinge = hinge_of(kl, kappa_bits * log(2), design.free_bits, ids)
    ce = F.cross_entropy(twin.logits(hidden).flatten(0, 1), targets.flatten())
    total = ce + hinge
    if not design.uniform_prior:
        total = total + fit.mean() - fit.mean().detach()
    return Loss(total, ce, kl.mean(), hinge)


def assert_same_loss(loss, expected: Loss, model, twin) -> None:
    """Values and all gradients, with a hinge that has an effect."""
    assert 0 < expected.hinge < expected.kl, "a hinge that is never open, or always, tests little"
    for name in ("total", "ce", "kl", "hinge"):
        values = getattr(loss, name), getattr(expected, name)
        torch.testing.assert_close(*values, msg=lambda m, n=name: f"{n}: {m}")
    loss.total.backward()
    expected.total.backward()
    for (name, ours), dense in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(
            ours.grad, dense.grad, atol=1e-6, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
        )
