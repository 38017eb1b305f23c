import pytest
import torch

from benchmarks import filtering
from benchmarks.measure import peak_bytes
from ftmodel.costs.filtering import filter_memory
from ftmodel.inference.filtering import filtering_bound
from ftmodel.model.config import ModelConfig
from ftmodel.model.transformer import FreeTransformer
from tests.benchmarks.checks import quick_figures


def test_the_filter_is_set_against_the_other_bounds() -> None:
    assert list(quick_figures(filtering)) == ["tiny: 2 particles ÷ bounds"]


@pytest.mark.parametrize(
    ("particles", "inject"), [(4, "kv"), (16, "kv"), (64, "kv"), (16, "memory")]
)
def test_memory_of_the_filter_is_what_the_allocator_says(particles, inject):
    """Within 15 %: which rows are resampled, and so copied, is chance."""
    config = ModelConfig(4, 64, 4, 2, 96, 128, latent_bits=8, latent={"inject": inject})
    torch.manual_seed(0)
    model = FreeTransformer(config, 101).eval()
    tokens = torch.randint(101, (8, config.context + 1))

    def bound():
        draw = lambda: torch.rand(8, config.context, 8)  # noqa: E731
        filtering_bound(model, tokens[:, :-1], tokens[:, 1:], particles, draw)

    measured = sum(p.nbytes for p in model.parameters()) + peak_bytes(bound)
    assert filter_memory(config, 101, 8, particles) == pytest.approx(measured, rel=0.15)
