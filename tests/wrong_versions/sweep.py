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
    Wrong(
        "a setting with a threshold of 0 named like a baseline's",
        "sweep/ranking.py",
        "if run.kappa_bits is not None or not key.startswith(LATENT)",
        "if run.kappa_bits or not key.startswith(LATENT)",
        "sweep/test_plan.py::test_a_threshold_of_0_is_trained_with_each_latent",
        "pipelines",
    ),
]
