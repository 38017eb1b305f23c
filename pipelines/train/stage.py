"""Stage `train`: one run of the experiment.

    python -m pipelines.train free_k1_8

Writes checkpoints/<experiment>/<run>/ (last.ckpt, <tokens>.ckpt for each smaller budget, the
resolved configuration, and what was asked and expected when the training began) and
results/<experiment>/<run>/curve.csv. A killed run goes on from its last good checkpoint, kept in
resume/ until the run is evaluated.
"""

import os

from pipelines.artifacts import preregistration
from pipelines.artifacts.paths import resume_folder, tokens_folder
from pipelines.artifacts.tokens.shards import Shards
from pipelines.common.atomic_files import alone
from pipelines.common.shell_paths import check_compile, check_ray
from pipelines.common.threads import set_threads
from pipelines.config.frozen import freeze
from pipelines.train.core.manifest import make_manifest
from pipelines.train.core.publish import publish
from pipelines.train.core.trainer import Process, fit


def main(name: str) -> None:
    frozen = freeze("train", name)
    experiment = frozen.experiment
    on_ray = experiment.compute.workers > 1 or bool(os.environ.get("RAY_ADDRESS"))
    if on_ray:
        check_ray()
    check_compile(experiment.compute.compile)
    with alone(resume_folder(experiment.name, name)):
        shards = Shards(tokens_folder(experiment.runs[name].data))
        spec_hash = make_manifest(experiment, name, shards).spec_hash
        preregistration.record(experiment, name, spec_hash)
        if on_ray:
            from pipelines.train.distributed import fit_on_ray

            fit_on_ray(experiment, name)
        else:
            set_threads(experiment.compute.threads)
            fit(experiment, name, Process())
        frozen.check("its checkpoints stay in resume/ for when that is undone")
        publish(experiment, name)
        preregistration.publish(experiment.name, name, spec_hash)
