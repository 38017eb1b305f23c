"""The charts with which `make ui` begins: bound against κ, which MLflow does not draw unasked.

A tag of an experiment holds a view of its charts, in the form in which MLflow 3.17 itself shares
one. To the charts in it MLflow adds one for each other metric, in the order of their names.
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
    charts = [chart(kind, metric) for kind in ("SCATTER", "LINE") for metric in METRICS]
    return json.dumps({"compareRunSections": sections, "compareRunCharts": charts})


def chart(kind: str, metric: str) -> dict[str, Any]:
    """A chart of a bound against κ, or against tokens."""
    content = {
        "type": kind,
        "uuid": f"{kind} {metric}",
        "metricSectionId": SECTION,
        "deleted": False,
        "runsCountToCompare": 100,
    }
    if kind == "SCATTER":
        axes = {"xaxis": {"key": "kappa_axis", "type": "PARAM"}}
        axes |= {"yaxis": {"key": metric, "type": "METRIC"}}
        return content | axes | {"isGenerated": False}
    return content | {
        "isGenerated": True,
        "metricKey": metric,
        "displayName": metric,
        "lineSmoothness": 0,
        "scaleType": "linear",
        "xAxisScaleType": "linear",
        "range": {},
        "xAxisKey": "step",
        "selectedXAxisMetricKey": "",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
        "ignoreOutliers": False,
    }
