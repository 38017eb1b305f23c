"""Wrong versions of pipelines/data."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "a file of two packages read twice",
        "common/distributions.py",
        "if path not in seen and self.lets_through(path):",
        "if self.lets_through(path):",
        "data/test_distributions.py::test_what_is_pinned_is_read_and_nothing_else",
        "pipelines",
    ),
    Wrong(
        "installed packages told by when they were written on this machine",
        "common/distributions.py",
        "mtime_ns=0)",
        "mtime_ns=file.stat().st_mtime_ns)",
        "data/test_distributions.py::test_another_machine_has_the_same_files_and_another_version_has_others",
        "pipelines",
    ),
    Wrong(
        "the first bytes of a corpus of packages are those of the first packages",
        "common/distributions.py",
        "return sha256(str(path).encode()).digest(), str(path)",
        'return b"", str(path)',
        "data/test_distributions.py::test_files_come_in_the_order_of_a_hash_of_their_paths",
        "pipelines",
    ),
    Wrong(
        "a hub's dataset read at another commit than the one that is kept",
        "data/sources/hub.py",
        "self.version = revision = dataset_commit(",
        "self.version = dataset_commit(",
        "data/test_sources.py::test_a_dataset_of_a_hub_is_read_at_the_commit_it_was_at",
        "pipelines",
    ),
    Wrong(
        "what is excluded decides whether finished work fits",
        "data/resume.py",
        'for name in ("pattern", "exclude"):',
        'for name in ("pattern",):',
        "data/test_build.py::test_a_bad_file_mended_or_left_out_costs_nothing_that_is_finished",
        "pipelines",
    ),
]
