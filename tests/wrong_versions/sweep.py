"""Wrong versions of pipelines/sweep."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "a threshold of 0 tried with one latent alone",
        "sweep/plan.py",
        "if run.kappa_bits is None:",
        "if not run.kappa_bits:",
        "sweep/test_plan.py::test_a_threshold_of_0_is_trained_with_each_latent",
        "pipelines",
    ),
]
