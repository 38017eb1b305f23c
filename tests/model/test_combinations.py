"""Settings of the latent's design together, where the other tests vary one at a time."""

import pytest
import torch

from ftmodel.model.objective import training_loss
from tests.support.dense_form import assert_same_loss, dense_loss, per_token
from tests.support.designs import all_pairs, possible, title
from tests.support.mutants import rejects

DOCUMENTS = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2, 2], [1, 2, 2, 3, 3, 3, 3, 3, 3]])


def test_there_are_few_of_many():
    assert len(possible()) == 1920, "only a recurrent prior of one z per sequence is none"
    assert len(all_pairs()) < 30


@rejects(
    "model/objective.py",
    "kl = mean_over_spans(kl, model.span_starts(kl.shape[1], kl.device, documents))",
    "pass",
    "the hinge of a span's z at its first token alone",
)
@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["rows", "documents"])
@pytest.mark.parametrize("design", all_pairs(), ids=title)
def test_loss_and_gradients_are_those_of_the_dense_form(
    make_model, make_tokens, design, rng, documents
):
    model, tokens = make_model(latent=design), make_tokens(2, 10)
    batch = tokens[:, :-1], tokens[:, 1:], torch.rand(2, 9, 3, generator=rng), 0.02, documents
    loss, twin = training_loss(model, *batch), per_token(model)
    expected = dense_loss(twin, model.config.latent, *batch)
    assert_same_loss(loss, expected, model, twin)
