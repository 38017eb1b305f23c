"""Stage `train`: train one run of the experiment."""

import os

from pipelines.artifacts.run_spec import RunSpec
from pipelines.cluster.dispatch import settle
from pipelines.cluster.preflight import check_ray
from pipelines.config.load import REUSED, freeze
from pipelines.host.compiler import check_compile
from pipelines.host.files import alone
from pipelines.train.core.segments import make_manifest, publish
from pipelines.train.core.trainer import fit


def main(name: str) -> None:
    frozen = freeze("train", name)
    experiment = frozen.experiment
    on_ray = experiment.compute.workers > 1 or bool(os.environ.get("RAY_ADDRESS"))
    if on_ray:
        check_ray()
    else:  # on Ray, each worker tries where it is
        settle(experiment.compute)
        check_compile(experiment.compute.compile)
    spec = RunSpec(experiment, name)
    with alone(spec.resume):
        manifest = make_manifest(spec, spec.shards())
        if on_ray:
            from pipelines.train.distributed import fit_on_ray

            fit_on_ray(spec, manifest)
        else:
            fit(spec, manifest)
        frozen.check(f"its checkpoints stay in resume/{REUSED}")
        publish(spec, manifest)
