"""Wrong versions of pipelines/train."""

from tests.wrong_versions import Wrong

WRONG = [
    Wrong(
        "an order with windows that are not there",
        "train/core/shuffle.py",
        "while len(outside",
        "if len(outside",
        "train/test_shuffle.py::test_without_a_table_every_window_comes_once",
        "pipelines",
    ),
]
