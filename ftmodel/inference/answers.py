"""log P(answer | prompt) of many answers to few prompts; each prompt is encoded once.

The encoder reads the prompt and never the answer: z for the prompt comes from the posterior
q(z | prompt), z for the answer from the prior, and probabilities are averaged over K samples:

    P(answer | prompt) ≈ (1/K) Σ_k P(answer | prompt, z_k)

An encoder that had read the answer could write it into z, and any answer would seem probable. A
random prefix is averaged over in the same way, and drawn before prompt and answer.

Shapes: B prompts, P tokens each; R answers, A tokens each, N in all; H latent bits, K samples,
D model width, V vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from math import log, nan, sqrt

import torch
from torch import Tensor

from ftmodel.cache import LayerCache, new_cache
from ftmodel.designs.noise import Draws, check_uniform, readable
from ftmodel.inference.latent_source import draws_of_new_tokens, prompt_codes
from ftmodel.inference.passes import upper_from_prior
from ftmodel.model.free_transformer import FreeTransformer, check_noise
from ftmodel.positions import check_like

READ_OUT_ELEMENTS = 1 << 25  # of the logits (tokens, V) in memory, but for those of one answer


@dataclass
class AnswerScores:
    """Scores of R answers; K = 1 for a baseline without random prefix, whose scores are exact."""

    log_probs: Tensor  # (K, R) nats, float64: log P(answer | prompt, z_k)
    # (R,) whether every token of the answer is the most probable next one; for a latent model
    # under the mixture Σ_k P(a_<t | z_k) P(· | a_<t, z_k)
    greedy: Tensor


class LowerHalf:
    """The lower half's activations of prompts and answers, from which the upper half predicts."""

    def __init__(
        self,
        model: FreeTransformer,
        prompts: Tensor,
        padding: Tensor | None,
        answers: Tensor,
        lengths: Tensor,
        rows: Tensor,
        draws: Draws | None = None,
    ) -> None:
        """Read prompts and answers. Arguments as in ``score_answers``, all on one device; padding
        None if there is none; ``draws`` (B, P, n) decide a random prefix.
        """
        p, a, device = prompts.shape[1], answers.shape[1], prompts.device
        self.model, self.rows, self.lengths = model, rows, (p, a - 1)
        self.mask = torch.arange(a, device=device) < lengths[:, None]  # (R, A): N tokens in all
        self.at = model.positions(prompts, padding=padding)
        later = None if padding is None else padding[rows]
        cache = new_cache(model.config, p)
        # (B, P, D); (B, n + P, D) with a random prefix
        self.x = model.lower(prompts, self.at, cache, draws)
        start = self.at.prefix + p
        self.after = model.positions(answers[:, :-1], start, padding=later)
        # (R, A − 1, D): the last token of an answer is predicted and never read
        self.x_answer: Tensor | None = None
        if a > 1:
            self.x_answer = model.lower(answers[:, :-1], self.after, self.for_answers(cache))

    def for_answers(self, cache: list[LayerCache]) -> list[LayerCache]:
        """The prompts' cache, copied for each answer, with room for it."""
        return [layer.select(self.rows, layer.length + self.lengths[1]) for layer in cache]

    def predict(self, r: Tensor | None, draws: Draws | None) -> Tensor:
        """Activations (N, D) that predict the answers' tokens, answer by answer, given the
        embeddings r (B, P, D) of the prompts' z and the ``draws`` (B, A − 1, H) of the answers' z
        from the prior; None for a baseline.
        """
        cache = new_cache(self.model.config, self.lengths[0])
        hidden = self.model.upper(self.x, r, self.at, cache)[self.rows, -1:]  # (R, 1, D)
        if self.x_answer is not None:
            copies = self.for_answers(cache)
            if draws is None:
                rest = self.model.upper(self.x_answer, None, self.after, copies)
            else:
                given = self.x_answer, draws[self.rows], self.after, copies, hidden.squeeze(1)
                rest, _ = upper_from_prior(self.model, *given)
            hidden = torch.cat((hidden, rest), dim=1)
        return hidden[self.mask]


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
    """Score answers to prompts with K samples of z.

    The lower half and the encoder run once, the upper half once per sample; answers of one token
    cost no more than the prompts. Memory: the keys and values of one sample, for all prompts and
    all answers; (K, N, D) activations.

    Args:
        prompts: (B, P), P ≥ 1, padded on the left; padding may hold any token.
        padding: (B,), how many positions of each prompt are padding, fewer than P; None: none.
        answers: (R, A), A ≥ 1, padded on the right; padding may hold any token.
        lengths: (R,), tokens of each answer, at least 1.
        rows: (R,), the index 0 … B − 1 of the prompt that each answer continues.
        draws: None for a baseline. With a random prefix, K times noise (B, P, n) or longer. Else K
            times noise (B, P + A − 1, H), uniform on [0, 1), which samples z from the encoder at
            the prompt's positions, from the prior at the answer's. All answers to a prompt share
            it, so the uniform prior gives them the same z. Noise at padding is not used.

    Raises ValueError for arguments that do not fit each other.
    """
    p, device = prompts.shape[1], prompts.device
    padding = padding.to(device) if padding is not None and padding.any() else None
    answers, lengths, rows = answers.to(device), lengths.to(device), rows.to(device)
    if not prompts.numel() or not answers.numel():
        shapes = f"{tuple(prompts.shape)} and {tuple(answers.shape)}"
        raise ValueError(f"prompts and answers: {shapes}, each needs at least one token")
    for name, x in (("lengths", lengths), ("rows", rows)):
        check_like(name, x, (len(answers),), prompts)
    if draws is not None and model.noise_source is None:
        raise ValueError("draws: a baseline has no latent and takes None")
    read = partial(LowerHalf, model, prompts, padding, answers, lengths, rows)
    hidden = []
    if model.latent is None:
        given: Iterable[Tensor | None] = [None] if draws is None else draws
        for noise in given:
            of_prompt = None if noise is None else noise[:, :p].to(device)
            check_noise(model, prompts, of_prompt, values=padding is None)
            lower = read(None if of_prompt is None else Draws(of_prompt))
            hidden.append(lower.predict(None, None))
    else:
        if draws is None:
            raise ValueError("draws: a Free Transformer samples z with noise, not None")
        lower = read()
        o = model.encode(prompts, lower.x, lower.at)  # of the prompt alone
        for draw in draws:
            noise = draw.to(device)
            check_like("draws", noise, (len(o), p + answers.shape[1] - 1, o.shape[-1]), o)
            if readable(noise) and (noise.is_cpu or not hidden):
                index = torch.arange(noise.shape[1], device=device)
                check_uniform(
                    noise if padding is None else noise[index >= padding[:, None]], "draws"
                )
            drawn = Draws(noise)
            codes = prompt_codes(model, prompts, drawn[:, :p], lower.x, o, lower.at)
            rest = draws_of_new_tokens(model, drawn[:, p:], codes, padding)
            hidden.append(lower.predict(model.latent.embed(codes), rest))
    return read_out(model, hidden, answers[lower.mask], lengths)


def read_out(
    model: FreeTransformer, hidden: list[Tensor], targets: Tensor, lengths: Tensor
) -> AnswerScores:
    """Score activations (N, D), one tensor for each of K samples, that predict ``targets`` (N,):
    the tokens of all answers, one after the other, with ``lengths`` (R,).

    It takes a few answers at a time: the logits of all tokens could need more memory than all else.
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
            logits = model.logits(state).float()  # (n, V)
            norm = log_normalizer(logits)  # (n, 1)
            token = (logits.gather(1, target[:, None]) - norm).squeeze(1)
            total = token.new_zeros(len(part)).index_add_(0, answer, token)
            sums.append(total)
            if len(states) > 1:  # one sample needs no weights
                # log P(a_<t | z_k): the sum over all earlier tokens, less the earlier answers'
                earlier = token.cumsum(0) - token - (total.cumsum(0) - total)[answer]
                logits = logits + (earlier[:, None] - norm)
            mixture = logits if mixture is None else torch.logaddexp(mixture, logits)
        assert mixture is not None, "no sample of z"
        misses = (mixture.argmax(1) != target).long()
        log_probs.append(torch.stack(sums))
        greedy.append(torch.zeros_like(part).index_add_(0, answer, misses) == 0)
    return AnswerScores(torch.cat(log_probs, dim=1), torch.cat(greedy))


def log_normalizer(logits: Tensor) -> Tensor:
    """log Σ_v exp(logits_v), nats, (n, 1) in float64, of float32 logits (n, V).

    On a CPU ``log_softmax`` adds up each row by a few running sums in float32: unlikely tokens are
    rounded away beside a likely one, and log P comes out too high, by some 10⁻⁵ nats per token at
    V = 49152.
    """
    top = logits.amax(1, keepdim=True)
    rest = (logits - top).exp_().sum(1, keepdim=True, dtype=torch.float64)
    return top + rest.log()


def log_mean_exp(log_probs: Tensor) -> Tensor:
    """Logarithm of the mean of probabilities: log (1/K) Σ_k exp(log_probs_k) of log_probs (K, R),
    nats; returns (R,), nats.
    """
    return log_probs.logsumexp(0) - log(len(log_probs))


def monte_carlo_error(log_probs: Tensor) -> Tensor:
    """Monte Carlo standard error, nats, (R,), of log_mean_exp of log_probs (K, R); NaN for K = 1.

    Delta method for the logarithm of a mean (Casella & Berger 2002, Statistical Inference, theorem
    5.5.24): std(w) / (√K mean(w)), with weights w_k = P(answer | prompt, z_k).
    """
    k = len(log_probs)
    if k == 1:
        return torch.full_like(log_probs[0], nan)
    weights = (log_probs - log_probs.max(0).values).exp()  # the scale cancels
    return weights.std(0) / (sqrt(k) * weights.mean(0))
