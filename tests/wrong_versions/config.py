"""Wrong versions of pipelines/config."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "a threshold of 0 trained as a baseline",
        "config/derived.py",
        "if run.kappa_bits is not None:",
        "if run.kappa_bits:",
        "config/test_schema.py::test_a_threshold_of_0_is_that_of_a_free_transformer",
        "pipelines",
    ),
    Wrong(
        "a threshold of 0 without latent bits",
        "config/checks.py",
        "if run.kappa_bits is None:",
        "if not run.kappa_bits:",
        "config/test_schema.py::test_a_threshold_of_0_is_that_of_a_free_transformer",
        "pipelines",
    ),
    Wrong(
        "a threshold of 0 with the blocks of a larger baseline",
        "config/checks.py",
        "run.extra_blocks < 0 or run.kappa_bits is not None",
        "run.extra_blocks < 0 or run.kappa_bits",
        "config/test_schema.py::test_a_threshold_of_0_is_that_of_a_free_transformer",
        "pipelines",
    ),
]
