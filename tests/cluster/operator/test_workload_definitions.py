"""Kinds of workload by their real definitions alone: the API server stores what Wattloop adds in each version.

A server drops fields that the schema of a definition lacks, without an error. No controller runs here: those of the
versions that the contract runs with are proven there.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.dynamic import DynamicClient

from support.binaries.build import JOBSET
from support.control_plane.chart import REPOSITORY, Release
from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob, condition
from support.control_plane.kind_controller import is_established
from support.control_plane.waiting import wait_until
from wattloop_operator.domain.names import JobKey

EXAMPLES = REPOSITORY / "examples" / "workloads"
TRAINER, TRAIN_JOBS = "github.com/kubeflow/trainer/v2", "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"
RUNTIMES = "manifests/base/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml"


@dataclass(frozen=True)
class Definition:
    """A definition of a kind in a version, and the place of the pod templates that Wattloop changes.

    The files are definitions; the objects are what a job of the kind needs.
    """

    module: str
    version: str
    files: tuple[str, ...]
    example: str
    pods: tuple[str | int, ...]
    objects: tuple[str, ...] = ()


DEFINITIONS = (
    Definition(
        TRAINER,
        "v2.1.0",
        (TRAIN_JOBS, RUNTIMES),
        "train-job",
        ("podTemplateOverrides", 0),
        ("manifests/base/runtimes/torch_distributed.yaml",),
    ),
    Definition(
        "github.com/kubeflow/training-operator",
        "v1.8.1",
        ("manifests/base/crds/kubeflow.org_pytorchjobs.yaml",),
        "pytorch-job",
        ("pytorchReplicaSpecs", "Master", "template"),
    ),
)


@pytest.fixture(params=DEFINITIONS, ids=lambda each: f"{each.example}-{each.version}")
def definition(
    request: pytest.FixtureRequest, kubectl: ClusterCommand, cluster: DynamicClient, release: Release
) -> Iterator[Definition]:
    """A definition, installed."""
    if shutil.which("go") is None:
        pytest.skip("no Go, which downloads the definitions of the kinds")
    found: Definition = request.param
    folder = sources(found)
    names = [_install(kubectl, cluster, folder / file) for file in found.files]
    for each in found.objects:
        kubectl("apply", "--server-side", f"--filename={folder / each}")
    yield found
    kubectl("delete", "crd", *names)


def _install(kubectl: ClusterCommand, cluster: DynamicClient, file: Path) -> str:
    """Install a definition; its name."""
    name: str = yaml.safe_load(file.read_text(encoding="utf-8"))["metadata"]["name"]
    kubectl("apply", "--server-side", f"--filename={file}")
    wait_until(
        cluster,
        api_version="apiextensions.k8s.io/v1",
        kind="CustomResourceDefinition",
        field_selector=f"metadata.name={name}",
        condition=lambda found: any(map(is_established, found)),
        what=f"{name} to be established",
    )
    return name


def sources(definition: Definition) -> Path:
    """The folder of the module that has the definition, in the module cache."""
    command = ["go", "mod", "download", "-json", f"{definition.module}@{definition.version}"]
    answer = subprocess.run(command, cwd=JOBSET.folder, capture_output=True, text=True, check=True, timeout=300)
    return Path(json.loads(answer.stdout)["Dir"])


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def test_the_server_stores_all_that_pods_need(
    definition: Definition, kubectl: ClusterCommand, driven: DrivenJob
) -> None:
    manifest = yaml.safe_load((EXAMPLES / f"{definition.example}.yaml").read_text(encoding="utf-8"))
    manifest["spec"] |= {"trigger": {"manual": {}}, "runRequest": "first"}
    kubectl.apply(manifest, namespace=driven.key.namespace)
    job = replace(driven, key=JobKey(driven.key.namespace, manifest["metadata"]["name"]))
    job.reconcile()
    assert condition(job.job, "Ready")["status"] == "True"
    kind = manifest["spec"]["template"]["workload"]["kind"]
    spec = kubectl.json("get", kind.lower(), job.name_of(), namespace=job.key.namespace)["spec"]
    pod = at(spec, definition.pods)
    assert pod["metadata"]["labels"]["wattloop.dev/recurrence"] == job.name_of()
    (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == "wattloop-reporting")
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "wattloop.dev/report"
    (container,) = pod["spec"]["containers"]
    assert "wattloop-reporting" in {each["name"] for each in container["volumeMounts"]}
    environment = spec["trainer"]["env"] if kind == "TrainJob" else container["env"]
    assert {"name": "WATTLOOP_RECURRENCE", "value": job.name_of()} in environment
