"""Answers scored with one reading of each prompt, against the full forward pass of each alone."""

import pytest
import torch

from ftmodel.answers import score_answers
from ftmodel.mapper import pack_bits

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
SHAPES = [{}, {"latent_bits": 0}, {"latent_block": 1}, {"latent_block": 4, "n_kv_heads": 4}]


def pad(rows, side, value):
    """Rows of unlike length as one tensor (R, longest), and how much was added to each (R,)."""
    longest = max(map(len, rows))
    added = [longest - len(row) for row in rows]
    fill = [row.new_full((n, *row.shape[1:]), value) for row, n in zip(rows, added, strict=True)]
    pairs = zip(fill, rows, strict=True)
    padded = [torch.cat((f, r) if side == "left" else (r, f)) for f, r in pairs]
    return torch.stack(padded), torch.tensor(added)


class Requests:
    """Answers to prompts of unlike length, with noise of K samples for each prompt's positions."""

    def __init__(self, model, rng, samples=3):
        self.model, self.bits = model, model.config.latent_bits
        self.prompts = [torch.randint(11, (n,), generator=rng) for n in (5, 1, 8, 3)]
        self.answers = [torch.randint(11, (n,), generator=rng) for n in (4, 1, 2, 6, 1, 3, 1)]
        self.rows = [0, 1, 1, 2, 2, 3, 0]
        # of each prompt's own positions and of 5 more, what the longest answer needs
        self.noise = [
            torch.rand(len(x) + 5, samples, self.bits, generator=rng) for x in self.prompts
        ]

    def scores(self, chosen=None, junk=0):
        """Scores of the chosen requests, by default all, as one batch, padded with ``junk``."""
        chosen = range(len(self.rows)) if chosen is None else chosen
        numbers = sorted({self.rows[i] for i in chosen})
        prompts, padding = pad([self.prompts[n] for n in numbers], "left", junk)
        answers, _ = pad([self.answers[i] for i in chosen], "right", junk)
        lengths = torch.tensor([len(self.answers[i]) for i in chosen])
        rows = torch.tensor([numbers.index(self.rows[i]) for i in chosen])
        draws = None
        if self.bits:
            noise, _ = pad([self.noise[n] for n in numbers], "left", junk / 11)
            length = prompts.shape[1] + answers.shape[1] - 1
            draws = iter(noise[:, :length].unbind(2))
        return score_answers(self.model, prompts, padding, answers, lengths, rows, draws)

    def alone(self, i):
        """log p (K, A, V) of request i, a full pass over prompt and answer for each sample."""
        model, prompt, answer = self.model, self.prompts[self.rows[i]], self.answers[i]
        tokens = torch.cat((prompt, answer))[None, :-1]
        p, length = len(prompt), tokens.shape[1]
        found = []
        for noise in self.noise[self.rows[i]].unbind(1):
            codes = None
            if self.bits:
                known = model(prompt[None], noise[None, :p]).codes
                codes = torch.cat((known, pack_bits(noise[None, p:length] < 0.5)), dim=1)
            hidden = model(tokens, codes=codes).hidden[0, p - 1 :]
            found.append(model.logits(hidden).log_softmax(-1))
        return torch.stack(found[:1] if not self.bits else found)


@pytest.fixture(params=SHAPES, ids=str)
def requests(request, make_model, rng):
    return Requests(make_model(**request.param), rng)


@torch.no_grad()
def test_scores_equal_those_of_full_passes_over_each_request_alone(requests):
    scores = requests.scores()
    assert scores.log_probs.dtype == torch.float64
    for i, answer in enumerate(requests.answers):
        log_p = requests.alone(i)
        taken = log_p[:, range(len(answer)), answer]  # (K, A)
        torch.testing.assert_close(scores.log_probs[:, i], taken.double().sum(1), **CLOSE)
