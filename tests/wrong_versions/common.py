"""Wrong versions of pipelines/common."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "large blocks of memory given back to the system",
        "common/allocator.py",
        "mallopt(MMAP_THRESHOLD, NEVER)",
        "mallopt(MMAP_THRESHOLD, 1 << 20)",
        "common/test_allocator.py::test_freed_memory_is_used_again",
        "pipelines",
    ),
    Wrong(
        "a file's time left out of what tells that it has changed",
        "common/file_listing.py",
        "entry.size, entry.mtime_ns)).encode()",
        "entry.size)).encode()",
        "commands/test_inputs.py::test_what_becomes_of_a_file_is_seen",
        "pipelines",
    ),
    Wrong(
        "evaluation on the streams of training",
        "common/rng_streams.py",
        "words = (seed, purpose, index)",
        "words = (seed, purpose % 3, index)",
        "common/test_rng_streams.py::test_no_two_streams_coincide",
        "pipelines",
    ),
    Wrong(
        "noise that goes on from the row before",
        "common/rng_streams.py",
        "stream.bit_generator.state = state",
        'stream.bit_generator.state["state"]["counter"][1] = second',
        "common/test_rng_streams.py::test_a_generator_that_is_moved_draws_as_new_ones_do",
        "pipelines",
    ),
    Wrong(
        "a process of DVC that has ended still holds up the pipeline",
        "common/pipeline_lock.py",
        '            if words := described("dvc", int(info["pid"])):',
        '            if words := described("dvc", int(info["pid"])) or "dvc":',
        "commands/test_repro.py::test_a_stage_of_dvc_is_seen_while_it_runs",
        "pipelines",
    ),
    Wrong(
        "params.yaml is composed before the pipeline is one's own",
        "repro.py",
        "    compose_valid(overrides)  # a mistake",
        "    write_params(compose_valid(overrides))  # a mistake",
        "commands/test_repro.py::test_nothing_is_composed_while_another_is_at_work",
        "pipelines",
    ),
    Wrong(
        "a copy of a small text taken for another text",
        "common/file_listing.py",
        "fingerprint.add_content(entry)",
        "fingerprint.add(entry)",
        "commands/test_inputs.py::test_what_becomes_of_a_file_is_seen",
        "pipelines",
    ),
    Wrong(
        "a foreign file in the place of a folder as a bug",
        "common/errors.py",
        "not in UNWRITABLE + FOREIGN:",
        "not in UNWRITABLE:",
        "common/test_errors.py::test_a_foreign_file_is_one_line_that_names_it",
        "pipelines",
    ),
    Wrong(
        "what is printed in the locale's encoding",
        "common/errors.py",
        'stream.reconfigure(encoding="utf-8", errors=',
        "stream.reconfigure(errors=",
        "common/test_utf8.py::test_arguments_and_what_is_printed_are_utf_8",
        "pipelines",
    ),
]
