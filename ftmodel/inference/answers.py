"""log P(answer | prompt), of many answers to few prompts, with one reading of each prompt.

The encoder reads the prompt and never the answer: z of the prompt's positions are drawn from
q(z | prompt), those of the answer's from the prior, and probabilities are averaged over K samples:

    P(answer | prompt) ≈ (1/K) Σ_k P(answer | prompt, z_k)

An encoder that had read the answer could write it into z, and any answer would seem probable.

Shapes: B prompts, P tokens each; R answers, A tokens each, N in all; H latent bits, K samples,
D model width, V vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log, nan, sqrt

import torch
from torch import Tensor

from ftmodel.model.layers import LayerCache
from ftmodel.model.mapper import binary_mapper, pack_bits
from ftmodel.model.transformer import FreeTransformer

READ_OUT_ELEMENTS = 1 << 25  # of logits (tokens, V) held at once, but for one answer's


@dataclass
class AnswerScores:
    """What a model says of R answers; K = 1 for a baseline, for which it is exact."""

    log_probs: Tensor  # (K, R) nats, float64: log P(answer | prompt, z_k)
    # (R,) whether each token of the answer is the most probable one after those before it; for a
    # latent model under the mixture Σ_k P(a_<t | z_k) P(· | a_<t, z_k)
    greedy: Tensor


@torch.inference_mode()
def score_answers(
    model: FreeTransformer,
    prompts: Tensor,
    padding: Tensor | None,
    answers: Tensor,
    lengths: Tensor,
    rows: Tensor,
    draws: Iterable[Tensor] | None,
) -> AnswerScores:
    """Score answers to prompts, K samples of z each.

    The lower half and the encoder run once, the upper half once a sample; answers of one token cost
    no more than the prompts. Held at once: the keys and values of one sample, for all prompts and
    all answers; (K, N, D) activations.

    Args:
        prompts: (B, P), P ≥ 1, padded on the left; what stands there does not matter.
        padding: (B,), how many positions of each prompt are padding, fewer than P; None: none.
        answers: (R, A), A ≥ 1, padded on the right; what stands there does not matter.
        lengths: (R,), tokens of each answer, at least 1.
        rows: (R,), the prompt that each answer continues, 0 … B − 1.
        draws: None for a baseline; else K times noise (B, P + A − 1, H), uniform on [0, 1): that of
            the prompt's positions samples the encoder's bits, that of the answer's is z of the
            prior (bits [noise < 0.5]), the same for all answers to a prompt, so that they are
            compared under the same z. What stands at padding does not matter.
    """
    p, a, device = prompts.shape[1], answers.shape[1], prompts.device
    padding = padding.to(device) if padding is not None and padding.any() else None
    answers, lengths, rows = answers.to(device), lengths.to(device), rows.to(device)
    reading = model.positions(0, p, device, padding=padding)
    going_on = model.positions(p, a - 1, device, padding=None if padding is None else padding[rows])

    def for_answers(cache: list[LayerCache]) -> list[LayerCache]:
        return [layer.select(rows, p + a - 1) for layer in cache]

    cache = model.new_cache(p)
    x = model.lower(prompts, reading, cache)  # (B, P, D)
    o = None if model.latent is None else model.latent.encode(x, reading)  # of the prompt alone
    # the last token of an answer is predicted and never read
    x_answer = model.lower(answers[:, :-1], going_on, for_answers(cache)) if a > 1 else None
    del cache
    asked = torch.arange(a, device=device) < lengths[:, None]  # (R, A)

    def predictions(kv: Tensor | None, kv_answer: Tensor | None) -> Tensor:
        """Activations (N, D) that predict the answers' tokens, answer by answer."""
        cache = model.new_cache(p)
        hidden = model.upper(x, kv, reading, cache)[rows, -1:]  # (R, 1, D)
        if x_answer is not None:
            later = model.upper(x_answer, kv_answer, going_on, for_answers(cache))
            hidden = torch.cat((hidden, later), dim=1)
        return hidden[asked]

    if model.latent is None or o is None:
        assert draws is None, "a baseline has no latent"
        hidden = [predictions(None, None)]
    else:
        assert draws is not None, "z is drawn with noise"
        table, hidden = model.latent.post_sampler, []
        for draw in draws:
            noise = draw.to(device)
            r, _ = binary_mapper(o, noise[:, :p], table)
            r_answer = table[pack_bits(noise[:, p : p + a - 1] < 0.5)][rows]
            hidden.append(predictions(x + r, None if x_answer is None else x_answer + r_answer))
    return read_out(model, hidden, answers[asked], lengths)


def read_out(
    model: FreeTransformer, hidden: list[Tensor], targets: Tensor, lengths: Tensor
) -> AnswerScores:
    """Scores of answers of ``lengths`` (R,), whose tokens ``targets`` (N,), answer by answer, K
    activations (N, D) predict.

    A few answers at a time: logits of all tokens could take more memory than all else.
    """
    most = max(1, READ_OUT_ELEMENTS // model.readout.out_features)  # tokens at a time
    group = (lengths.cumsum(0) - 1) // most
    parts = lengths.split(group.unique_consecutive(return_counts=True)[1].tolist())
    tokens = [int(part.sum()) for part in parts]
    split = zip(*(h.split(tokens) for h in hidden), strict=True)
    log_probs, greedy = [], []
    for states, target, part in zip(split, targets.split(tokens), parts, strict=True):
        answer = torch.arange(len(part), device=part.device).repeat_interleave(part)  # (n,)
        sums, mixture = [], None
        for state in states:
            log_p = model.logits(state).float().log_softmax(-1)  # (n, V)
            taken = log_p.gather(1, target[:, None])[:, 0].double()
            total = taken.new_zeros(len(part)).index_add_(0, answer, taken)
            sums.append(total)
            if len(states) > 1:  # log P(a_<t | z_k): one sample needs no weights
                earlier = taken.cumsum(0) - taken - (total.cumsum(0) - total)[answer]
                log_p = log_p + earlier[:, None]
            mixture = log_p if mixture is None else torch.logaddexp(mixture, log_p)
        assert mixture is not None, "no sample of z"
        missed = (mixture.argmax(-1) != target).long()
        log_probs.append(torch.stack(sums))
        greedy.append(torch.zeros_like(part).index_add_(0, answer, missed) == 0)
    return AnswerScores(torch.cat(log_probs, dim=1), torch.cat(greedy))


def log_mean_exp(log_probs: Tensor) -> Tensor:
    """log (1/K) Σ_k exp(log_probs_k), nats, (R,), of (K, R): the mean is one of probabilities."""
    return log_probs.logsumexp(0) - log(len(log_probs))


def monte_carlo_error(log_probs: Tensor) -> Tensor:
    """Standard error, nats, (R,), that log_mean_exp of log_probs (K, R) owes to K samples; NaN for
    K = 1.

    Delta method for the logarithm of a mean (Casella & Berger 2002, Statistical Inference,
    theorem 5.5.24): of weights w_k = P(answer | prompt, z_k), std(w) / (√K mean(w)).
    """
    k = len(log_probs)
    if k == 1:
        return torch.full_like(log_probs[0], nan)
    weights = (log_probs - log_probs.max(0).values).exp()  # their scale cancels
    return weights.std(0) / (sqrt(k) * weights.mean(0))
