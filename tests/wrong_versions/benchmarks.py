"""Of what measures."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "a reference that rotates in float32",
        "rounding.py",
        "return angles.cos(), angles.sin()",
        "return angles.float().cos().double(), angles.float().sin().double()",
        "benchmarks/test_rounding.py::test_log_likelihoods_are_those_of_numpy",
        package="benchmarks",
    ),
    Wrong(
        "a GPU's time without waiting for the GPU",
        "measure.py",
        "        torch.cuda.synchronize()\n",
        "        pass\n",
        "benchmarks/test_gpu.py::test_the_clock_waits_for_a_gpu",
        "benchmarks",
    ),
    Wrong(
        "a GPU's part that fails, and exit code 0",
        "gpu/__main__.py",
        'failed |= "figures" not in entry',
        'failed |= "figures" not in entry and "skipped" in entry',
        "benchmarks/test_gpu.py::test_a_part_that_fails_is_recorded_and_the_others_go_on",
        "benchmarks",
    ),
    Wrong(
        "a GPU's record that is written once, at the end",
        "gpu/__main__.py",
        "        record.write(path,",
        "        len(todo) > 1 or record.write(path,",
        "benchmarks/test_gpu.py::test_an_interruption_loses_nothing_that_was_measured",
        "benchmarks",
    ),
    Wrong(
        "a CPU build of PyTorch left where a GPU is",
        "gpu/wheels.py",
        'f"torch==={build}"',
        'f"torch=={build}"',
        "benchmarks/test_gpu_wheels.py::test_only_another_build_is_replaced",
        "benchmarks",
    ),
    Wrong(
        "a rehearsal on a GPU that shows met and missed",
        "gpu/record.py",
        "'rehearsed' if rehearsal else verdict",
        "verdict",
        "benchmarks/test_gpu.py::test_a_rehearsal_says_so_and_has_a_file_of_its_own",
        "benchmarks",
    ),
    Wrong(
        "a GPU's slice that stops between the micro-batches of a step",
        "gpu/training_slice.py",
        "    def on_step(self, trainer: L.Trainer) -> None:\n        trainer.should_stop |= ",
        "    def on_train_batch_end(self, trainer, *_) -> None:\n"
        "        trainer.should_stop |= trainer.global_step > 0 and ",
        "benchmarks/test_gpu_slice.py::test_an_arm_that_was_stopped_goes_on_as_if_it_had_not_been",
        "benchmarks",
        slow=True,
    ),
]
