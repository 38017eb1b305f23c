"""The charts that `make ui` opens with: bound against κ, which MLflow does not draw unasked.

A tag of an experiment holds a view of its charts, in the form in which MLflow 3.17 itself shares
one. MLflow adds a chart against the step for each metric, in the section of its name: bounds
against tokens beside bounds against κ.
"""

import json
from typing import Any

KEY = "charts"
TAG = f"mlflow.sharedViewState.{KEY}"
SECTION = "bound"
METRICS = ("bound/bits_per_token", "bound/bits_per_byte")
LAST = ("Model metrics", "System metrics")  # MLflow's own sections, which a view has to have


def view() -> str:
    sections: list[dict[str, Any]] = [
        {"uuid": name, "name": name, "display": True, "isReordered": False, "isGenerated": True}
        for name in (SECTION, *LAST)
    ]
    sections[0]["columns"] = 2
    charts = [against_kappa(metric) for metric in METRICS]
    return json.dumps({"compareRunSections": sections, "compareRunCharts": charts})


def against_kappa(metric: str) -> dict[str, Any]:
    return {
        "type": "SCATTER",
        "uuid": f"SCATTER {metric}",
        "metricSectionId": SECTION,
        "deleted": False,
        "isGenerated": False,
        "runsCountToCompare": 100,
        "xaxis": {"key": "kappa_axis", "type": "PARAM"},
        "yaxis": {"key": metric, "type": "METRIC"},
    }
