"""Held-out evaluation while training goes on."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from ftmodel.inference.bounds import latent_bounds
from ftmodel.inference.sequence_bound import nll_bound
from ftmodel.model.objective import training_loss
from pipelines.artifacts.run_spec import RunSpec
from pipelines.artifacts.tokens.shards import Shards
from pipelines.config.load import load_experiment
from pipelines.host.errors import UserError
from pipelines.host.files import tokens_folder
from pipelines.train import monitoring
from pipelines.train.core.module import TrainingModule
from pipelines.train.monitoring import (
    HeldOut,
    fixed_part,
    held_out_figures,
    held_out_steps,
    segments_of,
)
from tests.support.mutants import rejects
from tests.support.training import RUN

LN2 = torch.tensor(2.0).log().item()
WINDOWS = torch.zeros(2, 3)


@pytest.mark.parametrize("masked", [False, True])
def test_a_baseline_has_the_cross_entropy_of_its_windows(make_model, make_tokens, masked):
    """However many are scored at once."""
    model, tokens = make_model(latent_bits=0, document_mask=masked), make_tokens(5, 9)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    documents = inputs.eq(3).cumsum(1) if masked else None
    expected = training_loss(model, inputs, targets, documents=documents).ce.item() / LN2
    for rows in (2, 5):
        figures = held_out_figures(model, tokens, 3, seed=0, rows=rows)
        assert figures == {"bound": pytest.approx(expected, rel=1e-5)}


@rejects(
    "monitoring.held_out_figures: «generator(seed, Purpose.HELD_OUT)→torch.default_generator»",
    "whatever stream there is",
)
def test_a_free_transformer_has_its_kl_and_a_bound_from_a_stream_of_its_own(
    make_model, make_tokens, monkeypatch
):
    model, tokens = make_model(), make_tokens(5, 9)
    noise = torch.rand(5, 8, 3)
    loss = training_loss(model, tokens[:, :-1], tokens[:, 1:], noise, 0.5)
    before = torch.get_rng_state()
    counted, draws = [], []
    monkeypatch.setattr(monitoring, "nll_bound", lambda *a: counted.append(a) or nll_bound(*a))
    monkeypatch.setattr(
        monitoring, "latent_bounds", lambda *a: draws.append(a) or latent_bounds(*a)
    )
    first, again, other = (held_out_figures(model, tokens, None, seed, 5) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(counted[0][1], tokens[[0, 4], :-1])
    assert [each[3] for each in (counted[0], draws[0])] == [4, 1]
    assert [*first] == ["bound", "ce", "kl"] and first == again != other
    assert first["kl"] == pytest.approx(loss.kl.item() / LN2, rel=1e-4)


@rejects(
    "monitoring.segments_of: «* (inputs.shape[1] + 1)→»", "documents of two rows taken for one"
)
def test_each_document_of_each_row_is_a_segment_of_its_own():
    """Also of a row of as many documents as tokens."""
    rows = torch.tensor([[3, 3, 3], [5, 3, 5]])
    assert segments_of(rows, 3).tolist() == [[1, 2, 3], [4, 5, 5]]
    assert segments_of(rows, None).tolist() == [[1] * 3, [2] * 3]


@rejects('monitoring.fixed_part: «"validation"→"train"»,', "training windows scored as held out")
def test_evenly_spaced_held_out_windows_are_scored_and_too_few_or_many_are_one_line(workspace):
    spec = RunSpec(load_experiment(), RUN)
    shards = Shards(tokens_folder("target"))
    rows = [row.tolist() for row in shards.documents("validation")]
    spaced = [rows[i * len(rows) // 7] for i in range(7)]
    assert fixed_part(spec, shards, 7 * 2167).tolist() == spaced
    few = r"every_tokens: 2166: 3% of it, .* less than a window of 65 tokens .* at least 2167"
    with pytest.raises(UserError, match=few):
        fixed_part(spec, shards, 2166)
    there = len(shards.windows("validation", 65))
    assert len(fixed_part(spec, shards, 2167)) == 1
    assert len(fixed_part(spec, shards, int(there * 65 / 0.03) + 1)) == there
    most = int((there + 1) * 65 / 0.03) + 1
    with pytest.raises(UserError, match=f"{there + 1} windows .* data.target holds out {there}"):
        fixed_part(spec, shards, most)


@pytest.mark.parametrize(
    ("steps", "context", "rows", "first"),
    [(19, 64, 64, True), (20, 241, 16, True), (20, 5000, 1, False)],
)
def test_windows_are_scored_every_so_many_steps_which_counts_as_no_training(
    monkeypatch, capsys, steps, context, rows, first
):
    """At most 4096 tokens at once, but a window; the first worker says how long it took."""

    def score(model, tokens, end_of_text, seed, at_once):
        assert (model, tokens, end_of_text, seed, at_once) == (module.model, WINDOWS, 3, 5, rows)
        clock.now += 2.0
        return {"bound": 1.5, "kl": 0.5}

    clock, module = SimpleNamespace(now=100.0), Mock(spec=TrainingModule, device="cpu")
    module.model = "model"
    for name, value in {
        "perf_counter": lambda: clock.now,
        "fixed_part": lambda *_: WINDOWS,
        "held_out_figures": score,
    }.items():
        monkeypatch.setattr(monitoring, name, value)
    config, run = SimpleNamespace(context=context), SimpleNamespace(seed=5)
    spec = SimpleNamespace(batch_tokens=10, config=config, run=run, steps=steps, name="run")
    shards = SimpleNamespace(metadata=SimpleNamespace(end_of_text=3))
    assert [*held_out_steps(spec, 59)] == [*range(5, steps + 1, 5)]
    left_out = []
    callback = HeldOut(spec, shards, 59, left_out.append)
    trainer = SimpleNamespace(lightning_module=module, global_step=0, is_global_zero=first)
    callback.on_train_start(trainer, module)
    for step in range(1, 11):
        trainer.global_step = step
        callback.on_train_batch_end(trainer)
        logged = [call.args for call in module.log.call_args_list]
        figures = [("held_out_bound_bits", 1.5), ("held_out_kl_bits", 0.5)]
        assert logged == figures * (step // 5)
        assert left_out == [2.0] * (step // 5)
    clock.now = 108.0
    callback.on_train_end(trainer, module)
    said = "run: 50.0% of the time went into held-out evaluation\n"
    assert capsys.readouterr().err == said * first
