"""Real controllers of kinds of workload as processes, with their definitions and their webhooks."""

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from kubernetes.dynamic import DynamicClient

from support.binaries.build import (
    JOBSET,
    KUBERAY,
    TRAINER,
    TRAINER_2_1,
    TRAINER_2_3,
    TRAINING_OPERATOR,
    TRAINING_OPERATOR_1_9,
    Module,
)
from support.chart.rendering import documents
from support.control_plane.certificates import CertificateAuthority
from support.control_plane.commands import ClusterCommand
from support.control_plane.processes import ServerProcess
from support.control_plane.ray_heads import ray_heads
from support.control_plane.waiting import LONGEST_WAIT_SECONDS, Object, wait_until
from support.free_ports import free_port

# Where a controller looks for its certificate, below its folder for temporary files.
_CERTIFICATES = Path("k8s-webhook-server") / "serving-certs"
Arguments = Callable[[Path, int, int], Sequence[str]]
Companion = Callable[[DynamicClient], contextlib.AbstractContextManager[Mapping[str, str]]]


@dataclass(frozen=True)
class KindController:
    """A controller, and its files in the folder of its module.

    Attributes:
        definitions: The definitions of its kinds: a file, or a folder with nothing else in it.
        arguments: Returns its arguments, by a folder for files and the ports of its webhooks and its health.
        webhooks: Manifest of its webhooks; empty: none.
        served: End of the paths of those that it serves; the others are left out.
        objects: Manifest of objects that workloads need; empty: none.
        beside: Runs what it needs beside it, and yields its environment variables.
    """

    program: str
    module: Module
    definitions: str
    arguments: Arguments
    webhooks: str = ""
    served: str = ""
    objects: str = ""
    beside: Companion = lambda _: contextlib.nullcontext({})


def _by_configuration(api_version: str, certificates: str) -> Arguments:
    """Arguments of a controller with a configuration file.

    Args:
        certificates: Its field that says whether the controller makes its own certificates.
    """

    def arguments(folder: Path, port: int, health: int) -> Sequence[str]:
        configuration = {
            "apiVersion": api_version,
            "kind": "Configuration",
            "webhook": {"host": "127.0.0.1", "port": port},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "metrics": {"bindAddress": "0"},
            "leaderElection": {"leaderElect": False},
            certificates: {"enable": False},
        }
        path = folder / "configuration.json"
        path.write_text(json.dumps(configuration), encoding="utf-8")
        return [f"--config={path}"]

    return arguments


def _by_health_address(_folder: Path, _port: int, health: int) -> Sequence[str]:
    return [f"--health-probe-bind-address=127.0.0.1:{health}"]


def _by_ports(folder: Path, port: int, health: int) -> Sequence[str]:
    return [*_by_health_address(folder, port, health), f"--webhook-server-port={port}"]


JOB_SET_CONTROLLER = KindController(
    "jobset",
    JOBSET,
    "config/components/crd/bases",
    _by_configuration("config.jobset.x-k8s.io/v1alpha1", "internalCertManagement"),
    "config/components/webhook/manifests.yaml",
)
TRAIN_JOB_CONTROLLER = KindController(
    "trainer-controller-manager",
    TRAINER,
    "manifests/base/crds",
    _by_configuration("config.trainer.kubeflow.org/v1alpha1", "certManagement"),
    "manifests/base/webhook/manifests.yaml",
    objects="manifests/base/runtimes/torch_distributed.yaml",
)
TRAIN_JOB_CONTROLLER_2_1 = replace(
    TRAIN_JOB_CONTROLLER, program="trainer-2.1", module=TRAINER_2_1, arguments=_by_ports, served="-trainjob"
)
TRAIN_JOB_CONTROLLER_2_3 = replace(TRAIN_JOB_CONTROLLER, program="trainer-2.3", module=TRAINER_2_3)
PYTORCH_JOB_CONTROLLER = KindController(
    "training-operator",
    TRAINING_OPERATOR,
    "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
    _by_ports,
    "manifests/base/webhook/manifests.yaml",
    "-pytorchjob",
)
PYTORCH_JOB_CONTROLLER_1_9 = replace(
    PYTORCH_JOB_CONTROLLER,
    program="training-operator-1.9",
    module=TRAINING_OPERATOR_1_9,
    arguments=_by_health_address,
    webhooks="",
)
RAY_JOB_CONTROLLER = KindController("kuberay", KUBERAY, "config/crd/bases", _by_health_address, beside=ray_heads)


@contextlib.contextmanager
def running_controller(
    controller: KindController, program: Path, kubectl: ClusterCommand, cluster: DynamicClient, folder: Path
) -> Iterator[None]:
    """Install a controller, as its own manifests have it, but it is a process of this machine.

    Args:
        kubectl: An administrator's, who is also the controller's user.
    """
    sources = controller.module.sources()
    authority, port, health = CertificateAuthority(), free_port(), free_port()
    write_certificate(folder / _CERTIFICATES, authority)
    definitions = read_definitions(sources / controller.definitions)
    webhooks = [at_port(each, controller, port, authority.certificate) for each in _read(sources, controller.webhooks)]
    objects = _read(sources, controller.objects)
    with contextlib.ExitStack() as running:
        environment = {"TMPDIR": str(folder), **running.enter_context(controller.beside(cluster))}
        variables = [f"{name}={value}" for name, value in environment.items()]
        command = ["/usr/bin/env", *variables, program, f"--kubeconfig={kubectl.kubeconfig}"]
        arguments = controller.arguments(folder, port, health)
        with defined(kubectl, cluster, definitions):
            process = ServerProcess(controller.program, [*command, *arguments], folder)
            # It runs until the definitions are deleted: it removes the finalizers of its objects.
            running.callback(process.stop)
            await_ready(process, health)
            with applied(kubectl, webhooks), applied(kubectl, objects):
                yield


def read_definitions(place: Path) -> list[dict[str, Any]]:
    """The definitions of a file, or of a folder."""
    files = sorted(place.glob("*.yaml")) if place.is_dir() else [place]
    read = (each for path in files for each in documents(path.read_text(encoding="utf-8")))
    return [each for each in read if each["kind"] == "CustomResourceDefinition"]


def _read(sources: Path, manifest: str) -> list[dict[str, Any]]:
    return documents((sources / manifest).read_text(encoding="utf-8")) if manifest else []


@contextlib.contextmanager
def defined(
    kubectl: ClusterCommand, cluster: DynamicClient, definitions: Sequence[dict[str, Any]], *, clean_up: bool = True
) -> Iterator[None]:
    """A context in which definitions are established; with `clean_up` they are deleted at its end."""
    names = {each["metadata"]["name"] for each in definitions}
    kubectl.apply(*definitions)
    # kubectl wait fails on one that has no conditions yet.
    wait_until(
        cluster,
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        lambda found: names <= {each["metadata"]["name"] for each in found if is_established(each)},
        f"{', '.join(sorted(names))} to be established",
    )
    try:
        yield
    finally:
        if clean_up:
            kubectl("delete", "crd", *names)


def is_established(definition: Object) -> bool:
    """Whether the server serves the kind of a definition."""
    conditions = definition.get("status", {}).get("conditions") or []
    # One that a test before is deleting goes with all of its objects.
    return "deletionTimestamp" not in definition["metadata"] and any(
        each["type"] == "Established" and each["status"] == "True" for each in conditions
    )


@contextlib.contextmanager
def applied(kubectl: ClusterCommand, objects: Sequence[dict[str, Any]], *, clean_up: bool = True) -> Iterator[None]:
    """A context in which objects exist; with `clean_up` they are deleted at its end."""
    if objects:
        kubectl.apply(*objects)
    try:
        yield
    finally:
        for each in objects if clean_up else ():
            kubectl("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found")


def write_certificate(folder: Path, authority: CertificateAuthority) -> None:
    """Write the certificate of a server of this machine."""
    pair = authority.server(["127.0.0.1"], ["controller"])
    folder.mkdir(parents=True)
    pair.write(folder)


def at_port(configuration: dict[str, Any], controller: KindController, port: int, authority: bytes) -> dict[str, Any]:
    """A configuration of webhooks, on this machine. Those of pods see the pods of JobSets alone, as in its release."""
    configuration["metadata"]["name"] = f"{controller.program}-{configuration['metadata']['name']}"
    configuration["webhooks"] = [
        each
        for each in configuration["webhooks"]
        if each["clientConfig"]["service"]["path"].endswith(controller.served)
    ]
    for webhook in configuration["webhooks"]:
        path = webhook["clientConfig"].pop("service")["path"]
        webhook["clientConfig"] = {
            "url": f"https://127.0.0.1:{port}{path}",
            "caBundle": base64.b64encode(authority).decode("ascii"),
        }
        if path.endswith("-pod"):
            of_job_sets = {"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}
            webhook["objectSelector"] = {"matchExpressions": [of_job_sets]}
    return configuration


def await_ready(process: ServerProcess, health_port: int) -> None:
    """Wait until a controller says that it is ready."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while True:
        process.check_alive()
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"http://127.0.0.1:{health_port}/readyz").is_success:
                return
        assert time.monotonic() < deadline, f"{process.name} is not ready:\n{process.log_tail()}"
        time.sleep(0.1)
