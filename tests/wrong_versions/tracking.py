"""Wrong versions of pipelines/tracking."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "a threshold of 0 tagged as a baseline",
        "tracking/run.py",
        '"baseline" if manifest.run["kappa_bits"] is None',
        '"baseline" if not manifest.run["kappa_bits"]',
        "tracking/test_tracking.py::test_a_threshold_of_0_is_not_tagged_as_a_baseline",
        "pipelines",
    ),
]
