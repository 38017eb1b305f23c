"""How many stages run at once, and what each gets of the machine."""

import pytest

from pipelines.config.schema import Compute
from pipelines.host.errors import UserError
from pipelines.parallel import slots
from pipelines.parallel.slots import make_slots
from tests.support.arrivals import arrives

GB = 1e9


@pytest.fixture
def machine(monkeypatch):
    """Sets what the machine has."""

    def have(cores=2, gpus=0, memory=64 * GB, visible=None):
        monkeypatch.setattr(slots, "whole_cores", lambda: cores)
        monkeypatch.setattr(slots.torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(slots, "allowed_memory", lambda: memory)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return have


def threads(made):
    assert len({slot["OMP_NUM_THREADS"] for slot in made}) == 1
    return len(made), int(made[0]["OMP_NUM_THREADS"])


@pytest.mark.parametrize(
    ("cores", "runs", "expected"),
    [(2, 7, (2, 1)), (16, 7, (7, 2)), (16, 40, (16, 1)), (2, 1, (1, 2)), (1, 7, (1, 1))],
)
def test_cores_are_shared_between_as_many_runs_as_there_are(machine, cores, runs, expected):
    machine(cores)
    assert threads(make_slots(Compute(), runs, GB, None)) == expected


def test_the_memory_of_the_largest_run_is_there_for_each(machine):
    """And 1.5 GB, of 80 % of what there is."""
    machine(16, memory=10 * GB)
    assert threads(make_slots(Compute(), 9, 0.5 * GB, None)) == (4, 4)
    assert threads(make_slots(Compute(), 9, 0.5 * GB + 1, None)) == (3, 5)
    assert threads(make_slots(Compute(), 9, 1000 * GB, None)) == (1, 16)


@arrives("compute", "threads workers cpus_per_worker")
def test_a_number_that_is_given_is_taken_and_runs_that_want_more_cores_are_fewer(machine):
    machine(16, memory=GB)
    assert threads(make_slots(Compute(), 2, GB, 5)) == (5, 3)
    assert threads(make_slots(Compute(), 2, GB, 32)) == (32, 1)
    machine(16)
    assert len(make_slots(Compute(threads=4), 9, GB, None)) == 4
    assert len(make_slots(Compute(workers=2, cpus_per_worker=3), 9, GB, None)) == 2


@arrives("compute", "gpus_per_worker")
def test_each_has_a_gpu_of_its_own(machine):
    machine(64, gpus=4, memory=GB)  # of the machine's memory the model takes none
    made = make_slots(Compute(), 9, 100 * GB, None)
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in made] == ["0", "1", "2", "3"]
    assert threads(made) == (4, 16)
    made = make_slots(Compute(), 9, GB, 6)  # more than there are share them in turn
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in made] == ["0", "1", "2", "3", "0", "1"]
    made = make_slots(Compute(gpus_per_worker=0.5), 9, 100 * GB, None)
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in made] == [*"01230123"]
    assert len(make_slots(Compute(gpus_per_worker=0), 9, 100 * GB, None)) == 1  # by memory


def test_a_run_of_two_workers_has_two_gpus_of_those_that_may_be_used(machine):
    machine(64, gpus=4, visible="7,3,GPU-5,1")
    made = make_slots(Compute(workers=2), 9, GB, None)
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in made] == ["7,3", "GPU-5,1"]
    with pytest.raises(UserError, match=r"JOBS=3: each run has compute.workers=2"):
        make_slots(Compute(workers=2), 9, GB, 3)
    made = make_slots(Compute(workers=2, gpus_per_worker=0), 9, GB, 3)  # which need none
    assert made == [{"OMP_NUM_THREADS": "21"}] * 3
