"""The coin flip by flip, of a model whose answers are known."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ftmodel.analysis.information import observation_information
from ftmodel.synthetic import coin_flip
from pipelines.config.data import ProcessData
from pipelines.evaluate import hidden_causes
from tests.support.mutants import rejects

N = 300
DATA = ProcessData("coin", train_sequences=1, validation_sequences=N)
ROWS, SIDES = coin_flip.sample_labelled(N, torch.Generator().manual_seed(DATA.seed))


@pytest.fixture
def shards():
    return SimpleNamespace(documents=lambda split: (row.numpy() for row in ROWS))


class Speaks:
    """P(next flip is a one) is 0.6 … 0.9 with z of the encoder, 0.2 … 0.3 with z of the prior."""

    config = SimpleNamespace(context=coin_flip.FLIPS, latent_bits=1)
    latent, prefix = SimpleNamespace(), None

    def __init__(self):
        self.asked = []

    def __call__(self, inputs, noise):
        self.asked.append((inputs, noise, None))
        return self.output(0.6 + 0.3 * noise[..., 0])

    def from_prior(self, inputs, noise):
        self.asked.append((inputs, None, noise))
        return self.output(0.2 + 0.1 * noise[..., 0])

    def output(self, p):
        return SimpleNamespace(hidden=torch.stack((torch.zeros_like(p), 1 - p, p), -1))

    def logits(self, hidden):
        return hidden.log()


@rejects(
    "hidden_causes.measure_coin: «generator(context.settings.seed, "
    "Purpose.COIN)→torch.Generator().manual_seed(context.settings.seed)»",
    "z of the prior of numbers that other measurements draw",
)
@rejects(
    "hidden_causes.measure_coin: «model(copies, noise=noise)→from_prior(model, copies, of_prior)»",
    "z of the encoder and of the prior exchanged",
)
def test_the_coin_is_shown_with_z_of_the_encoder_and_z_of_the_prior(monkeypatch, measured):
    monkeypatch.setattr("pipelines.evaluate.hidden_causes.from_prior", Speaks.from_prior)
    model = Speaks()
    sequences = measured(hidden_causes.measure_coin, model, data=DATA, seed=DATA.seed)
    asked = iter(model.asked)
    of_prior = []
    exact = coin_flip.predictive(ROWS)
    ranked = exact.diff(dim=1).abs().sum(1).argsort(descending=True)
    for sequence, i in zip(sequences, ranked[[0, N // 4, N // 2]].tolist(), strict=True):
        assert sequence.flips == "".join(coin_flip.SYMBOLS[t] for t in ROWS[i, 1:])
        np.testing.assert_allclose(sequence.exact, exact[i], atol=1e-4)
        assert sequence.side == SIDES[i]
        assert sequence.given_side == coin_flip.probability_of_one(SIDES[i].double())
        (inputs, noise, _), (again, _, prior) = next(asked), next(asked)
        assert noise is not None and prior is not None
        for given in (inputs, again):
            flips = ["^" + sequence.flips[:-1]] * 4
            assert ["".join(coin_flip.SYMBOLS[t] for t in row) for row in given] == flips
        np.testing.assert_allclose(sequence.encoder_z, 0.6 + 0.3 * noise[..., 0], atol=1e-4)
        np.testing.assert_allclose(sequence.prior_z, 0.2 + 0.1 * prior[..., 0], atol=1e-4)
        of_prior.append(prior)
        assert not torch.equal(noise[0], noise[1])
    assert all(torch.equal(noise, of_prior[0]) for noise in of_prior)
    assert len(of_prior[0].unique(dim=0)) == 4
    same_seed = torch.rand(prior.shape, generator=torch.Generator().manual_seed(DATA.seed))
    assert not torch.equal(prior, same_seed), "numbers that the corpus or another measurement draws"
    assert 0.99 < observation_information(coin_flip.label_posterior(ROWS)) < 1
