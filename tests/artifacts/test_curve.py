"""The training curve: its bound, and how long the training took."""

from dataclasses import replace

import pytest

from ftmodel.designs.hinge import LN2
from pipelines.artifacts.curve import CurveRow, read_curve, training_seconds, write_table
from pipelines.host.errors import UserError


def row(step: int, tokens: int, speed: float = 1.0, kl_bits: float | None = None) -> CurveRow:
    return CurveRow(step, tokens, 9.0, 3 * LN2, 0.1, speed, kl_bits=kl_bits)


def test_the_training_bound_is_in_bits_with_kl() -> None:
    assert row(1, 10).bound_bits == pytest.approx(3)
    assert row(1, 10, kl_bits=0.5).bound_bits == pytest.approx(3.5)


def test_a_training_took_what_each_row_took() -> None:
    curve = [row(1, 10, speed=5.0), row(3, 30, speed=10.0), row(4, 40, speed=2.0)]
    assert training_seconds(curve) == pytest.approx(10 / 5 + 20 / 10 + 10 / 2)


def test_a_curve_is_read_back_with_what_not_all_rows_have(tmp_path) -> None:
    path = tmp_path / "curve.csv"
    latent = replace(row(1, 10, kl_bits=0.5), hinge_nats=0.25)
    others = ({}, {"grad_norm": 3.0}, {"other": 4.0})
    for curve in ([row(1, 10)], [replace(latent, step=i, others=o) for i, o in enumerate(others)]):
        write_table(path, [row.figures() for row in curve])
        assert read_curve(path) == curve
    names, *_ = path.read_text().splitlines()
    assert names == (
        "step,tokens,loss_nats,ce_nats,kl_bits,hinge_nats,learning_rate,tokens_per_second,"
        "grad_norm,other"
    )


@pytest.mark.parametrize("text", ["", "step,tokens\n1,ten\n", "loss_nats\n1\n"])
def test_a_damaged_curve_is_one_line(tmp_path, text) -> None:
    path = tmp_path / "free/curve.csv"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(UserError, match=r"curve\.csv: damaged; `dvc repro --force train@free`"):
        read_curve(path)
