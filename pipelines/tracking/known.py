"""What MLflow has about a run."""

from dataclasses import dataclass, field

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, Metric, Run

from pipelines.tracking.tracked import Point

ONCE = ("curve/", "curve_by_tokens/", "system/")  # one value a step: the first


@dataclass
class Known:
    """A run in MLflow, as far as a sync compares it with what lies on disk."""

    id: str
    artifacts: str  # where they are
    end: tuple[str, int | None]  # status and time
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    inputs: set[tuple[str, str]] = field(default_factory=set)  # name and digest
    outputs: set[str] = field(default_factory=set)  # ids of logged models
    models: dict[str, LoggedModel] = field(default_factory=dict)  # by name
    points: dict[tuple[str, int], float] = field(default_factory=dict)  # the newest of each step

    @classmethod
    def of(cls, run: Run, client: MlflowClient) -> "Known":
        info, data = run.info, run.data
        known = cls(info.run_id, info.artifact_uri, (info.status, info.end_time))
        known.params, known.tags = dict(data.params), dict(data.tags)
        own = f"source_run_id = '{info.run_id}'"
        models = client.search_logged_models([info.experiment_id], own)
        known.models = {model.name: model for model in models}
        if run.inputs:
            datasets = [each.dataset for each in run.inputs.dataset_inputs]
            known.inputs = {(each.name, each.digest) for each in datasets}
        if run.outputs:
            known.outputs = {each.model_id for each in run.outputs.model_outputs}
        for key in data.metrics:
            history = client.get_metric_history(info.run_id, key)
            for point in sorted(history, key=lambda point: point.timestamp):
                known.points[key, point.step] = point.value
        return known

    def lacks(self, point: Point) -> bool:
        value = self.points.get((point.key, point.step))
        if value is None or (value != point.value and not point.key.startswith(ONCE)):
            return True
        if not point.of:
            return False
        model, on, _ = point.of  # a killed server may have written the run's point alone
        wanted = (point.key, point.step, point.value, on)
        metrics = self.models[model].metrics or []
        return wanted not in {(m.key, m.step, m.value, m.dataset_name) for m in metrics}

    def metric(self, point: Point) -> Metric:
        plain = (point.key, point.value, point.time, point.step)
        if not point.of:
            return Metric(*plain)
        model, name, digest = point.of
        return Metric(
            *plain,
            model_id=self.models[model].model_id,
            dataset_name=name,
            dataset_digest=digest,
            run_id=self.id,
        )
