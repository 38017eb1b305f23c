"""The figures of a report and of an MLflow run, drawn with matplotlib."""

from matplotlib.figure import Figure

Curve = list[dict[str, float]]


def curves(runs: dict[str, Curve]) -> Figure:
    figure = Figure(figsize=(7, 4))
    return figure


def kl_per_bit(runs: dict[str, list[float]]) -> Figure:
    figure = Figure(figsize=(7, 4))
    return figure
