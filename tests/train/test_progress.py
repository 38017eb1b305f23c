"""What is shown while training goes on."""

import json
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from pipelines.artifacts.curve import CurveRow
from pipelines.host.console import FORMAT
from pipelines.train import monitoring
from pipelines.train.monitoring import TRACED_STEPS, CollapseWarning, Profile, Progress
from tests.support.mutants import rejects


def row(step, kl=0.0, **others):
    return CurveRow(step, 10 * step, 2.0 + step, 1.5, 0.1, 1234.0, kl, 0.25, others)


def after_step(callback, step):
    callback.on_train_batch_end(SimpleNamespace(global_step=step))


def test_the_bar_has_the_newest_row_and_the_newest_held_out_figure(monkeypatch):
    """What there is no room for is left out."""
    made = Mock()
    monkeypatch.setattr(monitoring, "Bar", made)
    curve = SimpleNamespace(rows=[])
    callback = Progress(curve, "run", 20)
    callback.on_train_end()  # before it has begun
    callback.on_train_start(SimpleNamespace(global_step=5), Mock())
    made.assert_called_once_with(20, desc="run", bar_format=FORMAT, initial=5, mininterval=0.5)
    bar = made.return_value
    after_step(callback, 6)
    bar.set_postfix.assert_called_with({}, refresh=False)
    curve.rows = [row(step, held_out_bound_bits=1.0 + step) for step in (1, 2, 3)]
    curve.rows.append(row(4, kl=None, grad_norm=0.5, gradient_norm=1.0, bits_in_use=1.0))
    after_step(callback, 7)
    expected = {"loss": "6.000 nats", "tokens/s": "1,234", "grad_norm": "0.5"}
    bar.set_postfix.assert_called_with(expected | {"held-out": "4.000 bits"}, refresh=False)
    curve.rows = [row(4, kl=0.5)]
    after_step(callback, 8)
    expected = {"loss": "6.000 nats", "KL": "0.500 bits", "tokens/s": "1,234"}
    bar.set_postfix.assert_called_with(expected, refresh=False)
    assert bar.update.call_count == 3 and not bar.close.called
    callback.on_exception()
    assert bar.close.call_count == 1


@rejects("Profile.on_step: self.«profiler.step()→profiler»", "a profile without an end")
@pytest.mark.parametrize("first", [0, 7])
def test_ten_steps_are_traced_after_ten_others(tmp_path, capsys, first):
    """A resumed training's, too; a training of nine steps leaves no trace."""
    callback = Profile(tmp_path / "logs" / "trace.json")
    for steps, found in ((9, False), (20, True)):
        callback.on_train_start(SimpleNamespace(global_step=first), Mock())
        for step in range(first + 1, first + steps + 1):
            torch.ones(8, 8).tril(step)
            after_step(callback, step)
        callback.on_train_end(Mock(), Mock())
        assert callback.path.exists() == found
    events = json.loads(callback.path.read_text())["traceEvents"]
    names = [event.get("name") for event in events if event.get("cat") == "cpu_op"]
    assert names.count("aten::tril") == TRACED_STEPS == 10
    said = capsys.readouterr().err
    assert "aten::tril" in said and str(callback.path) in said


@pytest.mark.parametrize(
    ("rows", "step", "told"),
    [
        ([], 10, False),
        ([row(10)], 10, True),
        ([row(1, 0.5), row(11)], 11, True),
        ([row(5), row(10, 0.5)], 10, False),
        ([row(5), row(10, 0.25)], 10, False),
        ([row(5), row(10)], 11, False),
        ([row(5), row(12)], 12, True),
        ([row(5), row(13)], 13, False),
        ([row(5), row(9)], 9, False),
    ],
)
def test_a_collapse_is_told_once_where_a_row_of_the_trunk_ends(rows, step, told, capsys):
    """KL under 0.2 bits for ten of 30 steps, of which twelve are the trunk's."""
    curve = SimpleNamespace(rows=rows, segment=SimpleNamespace(trunk=12))
    tracking = Mock()
    tracking.journal.run.run_name = "run"
    callback = CollapseWarning(tracking, curve, 2.0, 30)
    for _ in range(2):
        callback.on_train_start(SimpleNamespace(global_step=0), Mock())
        after_step(callback, step)
    said = capsys.readouterr().err
    assert said.count("run: the latent has collapsed") == tracking.journal.append.call_count == told
    if told:
        tracking.journal.append.assert_called_with(tags={"collapsed": "yes"})
        assert "κ = 2 bits (now 0.0000)" in said
