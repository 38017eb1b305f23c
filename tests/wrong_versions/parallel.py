"""Of stages side by side."""

from tests.wrong_versions import Wrong

WRONG = (
    Wrong(
        "stages that start before what they need has ended",
        "parallel/scheduler.py",
        "graph.needs[name] & names for",
        "set() for",
        "parallel/test_scheduler.py::test_each_runs_once_and_after_what_it_needs",
        "pipelines",
    ),
    Wrong(
        "a stage that failed lets those go on that need it",
        "parallel/scheduler.py",
        "            self.outcome.failed[job.name] = job.log\n",
        "            sorter.done(job.name)\n            self.outcome.failed[job.name] = job.log\n",
        "parallel/test_scheduler.py::test_one_that_fails_stops_what_needs_it_and_nothing_else",
        "pipelines",
    ),
    Wrong(
        "the pipeline is free as soon as who started its stages is killed",
        "parallel/scheduler.py",
        "                pass_fds=[self.lock],\n",
        "",
        "parallel/test_scheduler.py::test_the_lock_is_held_for_as_long_as_a_stage_runs",
        "pipelines",
    ),
    Wrong(
        "every stage side by side computes with all cores",
        "parallel/slots.py",
        "cores // jobs",
        "cores // 1",
        "parallel/test_slots.py::test_cores_are_shared_between_as_many_runs_as_there_are",
        "pipelines",
    ),
    Wrong(
        "all stages side by side use the first GPU",
        "parallel/slots.py",
        "gpus[(i * share + j) % len(gpus)]",
        "gpus[j % len(gpus)]",
        "parallel/test_slots.py::test_each_has_a_gpu_of_its_own",
        "pipelines",
    ),
    Wrong(
        "stages after one that changed are taken for up to date",
        "repro.py",
        "graph.downstream(changed_stages() - always) - always",
        "changed_stages() - always",
        "commands/test_repro_jobs.py::test_a_change_reaches_what_comes_after_it",
        "pipelines",
    ),
    Wrong(
        "a lock file of DVC that was cut short stays",
        "common/dvc_repair.py",
        "    except DvcException:\n        LOCKFILE.unlink()\n",
        "    except DvcException:\n",
        "common/test_dvc_repair.py::test_a_lock_file_cut_anywhere_costs_no_run",
        "pipelines",
    ),
)
