"""Which measurements of z in text are taken."""

from types import SimpleNamespace

import pytest

from pipelines.config.data import ProcessData, TextData
from pipelines.config.schema import Evaluation
from pipelines.evaluate import bit_information, sequence_z, steering, swap

SEQUENCE = {"latent": {"per": "sequence"}}


@pytest.mark.parametrize(
    ("module", "shape", "setting"),
    [
        (bit_information, {}, "bit_tokens"),
        (swap, {}, "swap_tokens"),
        (sequence_z, SEQUENCE, "swap_tokens"),
        (steering, {}, "steering_prompts"),
    ],
)
def test_not_on_processes_nor_where_it_is_turned_off(make_model, module, shape, setting):
    """Nor of baselines, but for steering: how far draws of tokens alone drive texts apart."""

    def applies(data=None, latent_bits=3, shape=shape, **settings):
        return module.applies(
            SimpleNamespace(
                model=make_model(latent_bits=latent_bits, **shape),
                data=data or TextData(),
                settings=Evaluation(**settings),
            )
        )

    assert applies()
    assert not applies(ProcessData("target")) and not applies(ProcessData("coin"))
    assert not applies(**{setting: 0})
    assert applies(latent_bits=0, shape={}) == (module is steering)
    assert applies(shape={}) == (module is not sequence_z)
