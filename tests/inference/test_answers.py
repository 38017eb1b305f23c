"""Scores of answers, each prompt encoded once, against the full forward pass of each alone."""

from itertools import product
from math import exp, log
from types import SimpleNamespace

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

import ftmodel.inference.answers
from ftmodel.config import ModelConfig
from ftmodel.inference.answers import (
    log_mean_exp,
    log_normalizer,
    monte_carlo_error,
    read_out,
    score_answers,
)
from ftmodel.inference.passes import with_codes
from ftmodel.mapper import bit_table, pack_bits
from ftmodel.model.free_transformer import FreeTransformer
from tests.support.mutants import rejects
from tests.support.passes import given_codes

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
SHAPES = [
    *({}, {"latent_bits": 0}, {"latent_block": 1}, {"latent_block": 4, "n_kv_heads": 4}),
    {"latent": {"encoder": "separate"}},
]


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

    def scores(self, chosen=range(7), junk=0):
        """Scores of the chosen requests as one batch, padded with ``junk``."""
        numbers = sorted({self.rows[i] for i in chosen})
        prompts = pad_sequence([self.prompts[n] for n in numbers], True, junk, "left")
        padding = torch.tensor([prompts.shape[1] - len(self.prompts[n]) for n in numbers])
        answers = pad_sequence([self.answers[i] for i in chosen], True, junk)
        lengths = torch.tensor([len(self.answers[i]) for i in chosen])
        rows = torch.tensor([numbers.index(self.rows[i]) for i in chosen])
        draws = None
        if self.bits:
            noise = pad_sequence([self.noise[n] for n in numbers], True, junk / 11, "left")
            draws = noise[:, : prompts.shape[1] + answers.shape[1] - 1].unbind(2)
        return score_answers(self.model, prompts, padding, answers, lengths, rows, draws)

    def alone(self, i):
        """log p (K, A, V) of request i, a full pass over prompt and answer for each sample."""
        model, prompt, answer = self.model, self.prompts[self.rows[i]], self.answers[i]
        tokens = torch.cat((prompt, answer))[None, :-1]
        p, length = len(prompt), tokens.shape[1]
        scores = []
        for noise in self.noise[self.rows[i]].unbind(1) if self.bits else [None]:
            codes = None
            if self.bits:
                known = model(prompt[None], noise[None, :p]).codes
                codes = torch.cat((known, pack_bits(noise[None, p:length] < 0.5)), dim=1)
            hidden = given_codes(model, tokens, codes).hidden[0, p - 1 :]
            scores.append(model.logits(hidden).log_softmax(-1))
        return torch.stack(scores)


@pytest.fixture(params=[*((shape, 3) for shape in SHAPES), ({}, 2)], ids=str)
def requests(request, make_model, rng):
    shape, samples = request.param
    model = make_model(**shape)
    if model.latent is not None:
        model.latent.post_sampler.data.mul_(5)  # samples with unlike predictions
    return Requests(model, rng, samples)


@rejects(
    "answers.score_answers: Draws(noise«→ if padding is None else torch.stack([n.roll(-k, "
    "0) for n, k in zip(noise, padding.tolist())])»",
    "noise of padding given to a prompt's first tokens",
)
@torch.no_grad()
def test_scores_equal_those_of_full_passes_over_each_request_alone(requests, monkeypatch):
    """In any batch and order, whatever padding holds, and however few are read out at a time."""
    expected = torch.stack(
        [
            requests.alone(i)[:, range(len(answer)), answer].double().sum(1)
            for i, answer in enumerate(requests.answers)
        ],
        dim=1,
    )  # (K, 7)
    greedy = requests.scores().greedy
    batches = [*([i] for i in range(7)), range(7), [6, 5, 4, 3, 2, 1, 0], [5, 2], [0, 1, 4, 6]]
    for chosen, (tokens, junk) in product(batches, ((1, 0), (5, 7), (1000, 7))):
        monkeypatch.setattr(ftmodel.inference.answers, "READ_OUT_ELEMENTS", 11 * tokens)
        scores = requests.scores(chosen, junk)
        assert scores.log_probs.dtype == torch.float64
        torch.testing.assert_close(scores.log_probs, expected[:, list(chosen)], **CLOSE)
        assert torch.equal(scores.greedy, greedy[list(chosen)])


@torch.no_grad()
def test_greedy_answers_are_those_of_the_most_probable_tokens_of_the_mixture(requests):
    """Half the answers are written by brute force, token by token; then one token is changed."""
    for i, answer in enumerate(requests.answers):
        for t in range(len(answer)):
            log_p = requests.alone(i).double()
            before = log_p[:, range(t), answer[:t]].sum(1)  # log P(a_<t | z_k)
            answer[t] = (log_p[:, t] + before[:, None]).logsumexp(0).argmax()
    assert requests.scores().greedy.all()
    for i, answer in enumerate(requests.answers):
        answer[i % len(answer)] = (answer[i % len(answer)] + 1) % 11
    assert not requests.scores().greedy.any()


def test_a_token_does_not_weigh_the_samples_that_predict_it():
    """Two samples with two tokens. Of the first token they give (0.33, 0.68) on average, of the
    second, after a first 1, (0.72, 0.28), after a first 0 (0.35, 0.65).
    """
    model = SimpleNamespace(logits=lambda p: p.log(), readout=SimpleNamespace(out_features=2))
    samples = [[[0.6, 0.4], [0.3, 0.7]], [[0.05, 0.95], [0.9, 0.1]]]
    hidden = [torch.tensor(sample).repeat(3, 1) for sample in samples]
    targets, lengths = torch.tensor([1, 0, 1, 1, 0, 1]), torch.tensor([2, 2, 2])
    assert read_out(model, hidden, targets, lengths).greedy.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("elements", "tokens"),
    [(5, [4, 1, 2, 6, 1, 3, 1]), (11, [4, 1, 2, 6, 1, 3, 1]), (76, [5, 2, 11]), (1000, [18])],
)
def test_how_many_tokens_are_read_out_at_a_time(make_model, rng, monkeypatch, elements, tokens):
    """Answers that end within the same ⌊elements / V⌋ tokens, and at least one answer."""
    read = []
    monkeypatch.setattr(ftmodel.inference.answers, "READ_OUT_ELEMENTS", elements)
    monkeypatch.setattr(
        ftmodel.inference.answers,
        "log_normalizer",
        lambda logits: read.append(len(logits)) or log_normalizer(logits),
    )
    Requests(make_model(latent_bits=0), rng).scores()
    assert read == tokens


@pytest.mark.parametrize("longest", [1, 6])
def test_what_runs_how_often(make_model, rng, longest):
    """Of 4 blocks two run once, two once a sample; again for answers longer than a token."""
    requests = Requests(make_model(), rng)
    calls = []
    modules = [*requests.model.blocks, requests.model.latent.encoder_block]
    for number, module in enumerate(modules):
        module.register_forward_hook(lambda *_, number=number: calls.append(number))
    requests.scores([i for i, answer in enumerate(requests.answers) if len(answer) <= longest])
    passes = 1 if longest == 1 else 2
    assert [calls.count(n) for n in range(5)] == [passes, passes, 3 * passes, 3 * passes, 1]


@pytest.fixture
def leaking():
    """A Free Transformer of one block over 4 tokens whose z is the next token, where the encoder
    can see it, and whose decoder expects the token z with probability 0.9.

    Both attend to one position, by RoPE's fastest pair: with a query turned by φ the scores are
    proportional to cos(i + φ − j), the encoder's with φ = 1 largest at j = i + 1, the decoder's at
    its own.
    """
    width = 16
    config = ModelConfig(1, width, 1, 1, 8, context=16, tied=False, latent_bits=2, latent_block=1)
    model = FreeTransformer(config, 4).eval()
    token, code = slice(4, 8), slice(8, 12)  # channels of the token, and of the code
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.zero_()
        model.embedding.weight[:, 0] = 1  # what queries and keys are made of
        model.embedding.weight[:, token] = torch.eye(4)
        model.latent.zeta[..., 0] = 1
        for block, phase, moved in (
            (model.latent.encoder_block, 1.0, token),
            (model.blocks[0], 0.0, code),
        ):
            attention = block.attention
            turned = torch.tensor([phase]).cos(), torch.tensor([phase]).sin()
            attention.query.weight[:2, 0] = 400 * torch.cat(turned)
            attention.key_value.weight[0, 0] = 1
            attention.key_value.weight[width:][moved, moved] = torch.eye(4)
            attention.output.weight[moved, moved] = torch.eye(4)
        model.latent.readout.weight[:, token] = 100 * (2 * bit_table(2).T - 1)
        model.latent.post_sampler[:, code] = torch.eye(4)
        # log 27 between the token z and any other: 27 / (27 + 3) = 0.9
        state = with_codes(model, torch.zeros(1, 1, dtype=torch.long), torch.tensor([[2]])).hidden[
            0, 0
        ]
        model.readout.weight[:, code] = torch.eye(4) * log(27) / state[10]
    return model


@rejects(
    "answers.score_answers: «(prompts, lower.x, lower.at)→(both := torch.cat((prompts, "
    "answers), 1), model.lower(both, q := model.positions(both)), q)[:, :p]»",
    "encoder reads the answer that is scored",
)
@rejects(
    "answers.score_answers: , padding) «→e = model.encode(answers[:, :-1], lower.x_answer, "
    "lower.after); model.latent.draw = lambda d, *_, e=e: model.latent.sample(e, d.noise)[1]; »",
    "z of an answer from the encoder",
)
@torch.no_grad()
def test_an_encoder_that_leaks_the_future_does_not_move_the_score(leaking, rng):
    """All 64 answers of three tokens to one prompt. Its reader finds 0.9 for every token of every
    answer; the score, z of the answer's two positions averaged over all 16 pairs, knows of an
    answer no more than the prompt says, and a quarter for each later token.
    """
    prompt = torch.tensor([[3, 0, 1, 1, 2]]).expand(64, -1)
    answers = torch.cartesian_prod(*[torch.arange(4)] * 3)
    tokens = torch.cat((prompt, answers), dim=1)
    noise = torch.rand(64, 8, 2, generator=rng)

    def log_p(out):
        log_p = leaking.logits(out.hidden[:, 4:7]).log_softmax(-1)
        return log_p.gather(-1, answers[..., None])[..., 0]  # (64, 3)

    leaked = log_p(leaking(tokens, noise))
    torch.testing.assert_close(leaked, torch.full((64, 3), log(0.9)), atol=1e-2, rtol=0)

    draws = []
    for z in product(range(4), repeat=2):
        of_answer = (0.99 * (1 - bit_table(2)[list(z)])).expand(64, -1, -1)  # of the prior
        draws.append(torch.cat((noise[:, :5], of_answer), dim=1))
    lengths, rows = torch.full((64,), 3), torch.arange(64)
    scores = score_answers(leaking, prompt, None, answers, lengths, rows, draws).log_probs
    blind = []
    for z in product(range(4), repeat=2):
        known = leaking(prompt, noise[:, :5]).codes
        codes = torch.cat((known, torch.tensor(z).expand(64, -1)), dim=1)
        blind.append(log_p(with_codes(leaking, tokens[:, :-1], codes)))
    torch.testing.assert_close(scores, torch.stack(blind).double().sum(-1), **CLOSE)
    expected = blind[0][:, 0].double() + 2 * log(0.25)
    torch.testing.assert_close(log_mean_exp(scores), expected, atol=1e-2, rtol=0)
    assert leaked.sum(1).exp().sum() > 40, "of what should be 1"
    assert log_mean_exp(scores).exp().sum().item() == pytest.approx(1, abs=1e-4)


@rejects("answers.monte_carlo_error: 0«→, correction=0») /", "a Monte-Carlo error too small")
@rejects("answers.log_mean_exp: «logsumexp(0) - log(len(log_probs))→mean(0)»", "a mean of log P")
@pytest.mark.filterwarnings("error")
def test_the_monte_carlo_error_is_the_spread_of_the_estimate(rng):
    """3000 estimates from 400 samples each, at two scales of probability; and of probabilities 1
    and 3: standard deviation √2, mean 2, error √2 / (√2 · 2).
    """
    log_probs = torch.randn(400, 3000, generator=rng, dtype=torch.float64) * 0.7 - 900
    estimates, errors = log_mean_exp(log_probs), monte_carlo_error(log_probs)
    assert errors.mean().item() == pytest.approx(estimates.std().item(), rel=0.05)
    of_one = monte_carlo_error(log_probs[:1])
    assert of_one.shape == (3000,) and of_one.isnan().all()
    assert (monte_carlo_error(log_probs[:1].expand(4, -1)) == 0).all()
    error = monte_carlo_error(torch.tensor([[1.0], [3.0]], dtype=torch.float64).log() - 900)
    assert error.item() == pytest.approx(0.5)


@rejects(
    "answers.log_normalizer: «top + rest.log→logits.logsumexp(-1, True).double»",
    "unlikely tokens rounded away beside a likely one",
)
@pytest.mark.parametrize("top", [12.0, 14.0, 40.0])
def test_unlikely_tokens_count_beside_a_likely_one(top):
    """Σ = e^top + V − 1, in closed form; log_softmax misses its logarithm by up to 1e-4."""
    vocabulary = 49_152
    logits = torch.zeros(2, vocabulary)
    logits[0, 5], logits[1, -1] = top, top
    expected = log(exp(top) + vocabulary - 1)
    errors = log_normalizer(logits)[:, 0] - expected
    assert errors.abs().max() < 5e-7
