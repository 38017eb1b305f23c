"""What the pages say of costs is what the planner says; deploy/ is what Ray would accept."""

import re

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from ftmodel.config import ModelConfig
from ftmodel.costs.training import flops_per_token, utilisation
from pipelines.artifacts.run_spec import RunSpec
from pipelines.config import derived
from pipelines.parallel import plan
from tests import ROOT
from tests.support.commands import call
from tests.support.settings import composed_by_hydra as composed

PAGE, OTHER_PAGE = ((ROOT / f"docs/{name}.md").read_text() for name in ("cluster", "performance"))
SHOWN = r"^\$ ftlab plan (.*)\n((?:.*\n)*?)```"
COMMANDS = re.findall(SHOWN, PAGE, re.MULTILINE)
SCALING = re.findall(SHOWN, OTHER_PAGE, re.MULTILINE)
VOCABULARY = 1 << 17


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def markdown(*rows: tuple[object, ...]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def between(mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n(.*?)\n?<!-- end -->", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_pages_show_both_experiments_and_both_strategies():
    assert [command for command, _ in COMMANDS] == ["experiment=paper_1_5b", "experiment=paper_8b"]
    assert len(SCALING) == 3 and all("computed, not measured" in shown for _, shown in SCALING)


@pytest.mark.parametrize(("arguments", "shown"), COMMANDS + SCALING, ids=lambda text: text[:60])
def test_a_shown_output_is_what_the_planner_prints(capsys, arguments, shown):
    call("plan", *arguments.split())
    assert capsys.readouterr().out == shown


OTHER = [  # experiment, strategy, workers, micro-batches a step
    ("paper_1_5b", "ddp", 1, 256),
    ("paper_1_5b", "ddp", 8, 32),
    ("paper_1_5b", "fsdp", 8, 32),
    ("paper_1_5b", "fsdp", 8, 16),
    ("paper_1_5b", "fsdp", 64, 2),
    ("paper_8b", "fsdp", 16, 64),
    ("paper_8b", "fsdp", 64, 16),
    ("paper_8b", "fsdp", 64, 8),
    ("paper_8b", "fsdp", 512, 2),
]

H100S = plan.Assumptions(flops=989e12, mfu=0.4, memory=80.0, price=None)  # the defaults


def test_other_numbers_of_gpus():
    rows: list[tuple[object, ...]] = [
        ("experiment", "GPUs", "strategy", "accumulate", "sequences", "GiB", "tokens/s", "days")
    ]
    for name, strategy, workers, accumulate in OTHER:
        compute = {"workers": workers, "strategy": strategy, "accumulate": accumulate}
        settings = [f"compute.{key}={value}" for key, value in compute.items()]
        p = plan.RunPlan(RunSpec(composed(f"experiment={name}", *settings), "free_k1"), H100S)
        rows.append(
            (name, workers, strategy, accumulate, p.micro_batch, f"{p.memory.total / plan.GIB:.0f}",
             f"{p.tokens_per_second * workers:,.0f}", f"{p.days:.1f}")
        )  # fmt: skip
    assert between("other GPUs") == markdown(*rows)


def architectures(name: str) -> tuple[ModelConfig, ModelConfig]:
    """Baseline and Free Transformer."""
    experiment = composed(f"experiment={name}")
    baseline, free = (
        derived.model_config(experiment, experiment.runs[r]) for r in ("baseline", "free_k1")
    )
    return baseline, free


def test_utilisation_of_the_papers_own_times():
    rows: list[tuple[object, ...]] = [
        ("model", "tokens", "GPUs", "hours", "tokens/s per GPU", "FLOPs/token", "utilisation")
    ]
    for name, model, tokens, gpus, hours in (
        ("paper_1_5b", "1.5 B", 47e9, 32, 12),
        ("paper_8b", "8 B", 200e9, 256, 24),
        ("paper_8b", "8 B", 1e12, 256, 120),
    ):
        flops = flops_per_token(architectures(name)[0], VOCABULARY)
        speed = tokens / gpus / hours / 3600
        used = utilisation(speed, flops, H100S.flops)
        rows.append(
            (model, plan.short_number(tokens), gpus, hours, f"{speed:,.0f}", f"{flops.total:.3e}",
             f"{used:.1%}")
        )  # fmt: skip
    assert between("paper") == markdown(*rows)


def test_overhead_of_the_latent():
    rows: list[tuple[object, ...]] = [("model", "encoder", "gradient over codes", "sum", "dense")]
    for name, model in (("paper_1_5b", "1.5 B"), ("paper_8b", "8 B")):
        baseline, free = architectures(name)
        whole, flops = flops_per_token(baseline, VOCABULARY), flops_per_token(free, VOCABULARY)
        # a product with the table, and its gradients
        dense = flops.encoder + (6 * free.d_model << free.latent_bits)
        parts = (flops.encoder, flops.mapper, flops.encoder + flops.mapper, dense)
        rows.append((model, *(f"{part / whole.total:.1%}" for part in parts)))
    assert between("overhead") == markdown(*rows)


def test_ray_accepts_the_cluster_of_machines():
    """As `ray up` checks it, and with all its nodes at all times."""
    config = prepare_config(yaml.safe_load((ROOT / "deploy/ray-cluster.yaml").read_text()))
    validate_config(config)
    (node,) = config["available_node_types"].values()
    assert node["min_workers"] == node["max_workers"] == len(config["provider"]["worker_ips"])
    start = " ".join(config["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in start
    assert any("make .venv/installed" in line for line in config["head_setup_commands"])


def test_the_cluster_on_kubernetes_has_fixed_workers_shared_storage_and_a_closed_head():
    """And Ray of the version in constraints.txt."""
    documents = yaml.safe_load_all((ROOT / "deploy/kuberay.yaml").read_text())
    parts = {document["kind"]: document for document in documents}
    spec = parts["RayCluster"]["spec"]
    (group,) = spec["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    gpus = group["replicas"] * container["resources"]["limits"]["nvidia.com/gpu"]
    assert gpus == 32 == composed("experiment=paper_1_5b").compute.workers
    (version,) = re.findall(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    (image,) = re.findall(r"-t (\S+)", dockerfile)
    assert spec["rayVersion"] == version and image.endswith(version)
    assert f"FROM rayproject/ray:{version}-" in dockerfile
    assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]
    claim = parts["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for pod in (spec["headGroupSpec"], group):
        template = pod["template"]["spec"]
        volumes = {volume["name"]: volume for volume in template["volumes"]}
        (container,) = template["containers"]
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
        project = mounts["/srv/free-transformer-lab"]["persistentVolumeClaim"]
        assert project["claimName"] == claim["metadata"]["name"]
        assert container["image"] == image
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
    policy = parts["NetworkPolicy"]["spec"]
    labels = {"ray.io/cluster": parts["RayCluster"]["metadata"]["name"]}
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy["ingress"] == [{"from": [{"podSelector": {}}]}]
