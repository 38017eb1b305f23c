"""What the heat map of the latent bits draws, read back from matplotlib's own objects."""

from pipelines.report.sections.latent_bits import kl_per_bit


def test_heat_map_shows_each_bit_of_runs_with_different_h():
    axes = kl_per_bit({"three": [0.1, 0.2, 0.3], "five": [0.5] * 5}).axes[0]
    shown = [(text.get_position(), text.get_text()) for text in axes.texts]
    assert len(shown) == 8
    assert ((2, 0), "0.300") in shown
    assert axes.images[0].get_array().mask.sum() == 2
    assert [label.get_text() for label in axes.get_yticklabels()] == ["three", "five"]
