"""Wrong versions of pipelines/data."""

from tests.wrong_versions import Wrong

WRONG = [
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
