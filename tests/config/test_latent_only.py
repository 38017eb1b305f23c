"""Which settings a baseline does not read, so that a grid or a sweep over them has it once."""

from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from operator import attrgetter
from types import SimpleNamespace

import torch

from pipelines.artifacts.run_spec import RunSpec
from pipelines.config.grid import KEY_GROUPS, LATENT_SETTINGS
from pipelines.config.schema import Schedule
from pipelines.train.core.segments import Start, segments
from pipelines.train.core.trainer import Process, SegmentTraining
from tests.support.mutants import rejects
from tests.support.settings import smoke
from tests.support.training import same

UNREAD = {  # the data, the parent, smaller budgets; what makes a latent; what checks refuse
    *("run.data", "run.model", "run.budgets", "run.kappa_bits", "architecture.random_prefix"),
    *("run.init_from.hf", "run.init_from.run", "run.init_from.copied_lr"),
}
IN_PLACE_OF_NULL = {
    **{"architecture.head_width": 4, "architecture.latent_block": 1, "run.latent_block": 1},
    **{"run.latent_bits": 3, "optim.width_scaling": 8, "optim.skip_spikes": 2.0},
}


def all_settings(kind, prefix):
    """Keys, with what holds the setting and its name as a path; a marked group is one setting."""
    for each in fields(kind):
        key = f"{prefix}.{each.name}"
        if is_dataclass(each.type) and key not in LATENT_SETTINGS:
            yield from all_settings(each.type, key)
        else:
            yield key


def another(key, value):
    if value is None:
        return IN_PLACE_OF_NULL[key]
    if is_dataclass(value):
        return replace(value, map="linear")
    if isinstance(value, Enum):
        return next(member for member in type(value) if member is not value)
    if isinstance(value, bool):
        return not value
    return (2 * value or 1) if isinstance(value, int) else value / 2


def trained_baseline(experiment, changed=None):
    """Its weights after three steps, with another value of one setting."""
    spec = RunSpec(deepcopy(experiment), "baseline")
    preset = spec.experiment.models[spec.run.model]
    small = {"context": 8, "rope_factor": 2.0, "rope_theta": 10.0, "rope_old_context": 64}
    vars(preset.architecture).update(small)
    decays = {"batch_size": 2, "warmup_steps": 1, "schedule": Schedule.wsd, "decay": 0.9}
    vars(spec.optim).update(decays)
    spec.run.tokens = 12 * spec.batch_tokens
    if changed:
        path, _, name = changed.rpartition(".")
        roots = SimpleNamespace(run=spec.run, **vars(preset))
        holder = attrgetter(path)(roots)
        setattr(holder, name, another(changed, getattr(holder, name)))
    tokens = SimpleNamespace(metadata=SimpleNamespace(vocab_size=11, end_of_text=3))
    start = Start(None, segments(spec)[-1], None)
    module = SegmentTraining(spec, Process(), start, None).build_module(tokens)
    module.norms = [1e-6] * 20
    module._trainer = SimpleNamespace(world_size=1, global_rank=1)
    found = module.configure_optimizers()
    rng = torch.Generator().manual_seed(1)
    shape = spec.optim.batch_size, spec.config.context
    batch = {
        "tokens": torch.randint(11, (shape[0], shape[1] + 1), generator=rng),
        "windows": torch.zeros(shape[0]),
    }
    if n := spec.config.random_prefix:
        batch["noise"] = torch.rand(*shape, n, generator=rng)
    for module._trainer.global_step in range(3):
        module.zero_grad()
        module.training_step(batch, 0).backward()
        module.configure_gradient_clipping(found["optimizer"])
        found["optimizer"].step()
        found["lr_scheduler"]["scheduler"].step()
    return module.state_dict()


@rejects("Arm.kappa_warmup_steps: 0«, metadata=LATENT_ONLY→»", "a setting of the latent forgotten")
def test_settings_that_a_baseline_does_not_read_are_marked_and_no_others():
    """Another value of them trains the very same weights, one of any other setting others."""
    keys = [key for group, kind in KEY_GROUPS.items() for key in all_settings(kind, group)]
    experiment = smoke("compute.compile=false")
    plain = trained_baseline(experiment)
    others = {key: trained_baseline(experiment, key) for key in keys if key not in UNREAD}
    assert {key for key, weights in others.items() if same(weights, plain)} == {*LATENT_SETTINGS}
