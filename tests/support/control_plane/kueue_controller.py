"""The real Kueue as a process, with its definitions and its webhooks, and queues with a quota of pods."""

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from kubernetes.dynamic import DynamicClient

from support.binaries.build import KUEUE
from support.control_plane.commands import ClusterCommand
from support.control_plane.kind_controller import applied, await_ready, defined, read_definitions
from support.control_plane.processes import ServerProcess
from support.control_plane.waiting import Object, wait_until
from support.free_ports import free_port

API_VERSION = "kueue.x-k8s.io/v1beta2"
_NAMESPACE = "kueue-system"
_SERVICE = "kueue-webhook-service"
_SECRET = "kueue-webhook-server-cert"
_DEFINITIONS = ("config", "components", "crd", "bases")
_WEBHOOKS = ("config", "components", "webhook", "manifests.yaml")
_CONVERTED = {"localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters"}
# Webhooks of other kinds would call it for every object of the other tests.
_WEBHOOKS_USED = (
    "kueue-x-k8s-io",
    "batch-v1-job",
    "jobset-x-k8s-io",
    "trainer-kubeflow-org",
    "kubeflow-org-v1-pytorchjob",
    "ray-io-v1-rayjob",
)
_FRAMEWORKS = (
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "trainer.kubeflow.org/trainjob",
    "kubeflow.org/pytorchjob",
    "ray.io/rayjob",
)


@contextlib.contextmanager
def kueue_controller(
    program: Path, kubectl: ClusterCommand, cluster: DynamicClient, folder: Path, *, clean_up: bool = True
) -> Iterator[None]:
    """Install Kueue, as its own manifests have it, but the controller is a process of this machine.

    It makes its certificate itself: without that, it reads one for its metrics from /etc. Its Service leads to this
    machine.

    Args:
        kubectl: An administrator's, who is also the controller's user.
        clean_up: Whether what it installs and manages is deleted at the end; thousands of Workloads take minutes.
    """
    port, health, sources = free_port(), free_port(), KUEUE.sources()
    definitions = [_converted(each, port) for each in read_definitions(sources.joinpath(*_DEFINITIONS))]
    webhooks = [
        _used(each, port) for each in yaml.safe_load_all(sources.joinpath(*_WEBHOOKS).read_text(encoding="utf-8"))
    ]
    kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET, "namespace": _NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": _SERVICE, "namespace": _NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1"},
        },
    )
    command = [program, f"--kubeconfig={kubectl.kubeconfig}", f"--config={_configuration(folder, port, health)}"]
    # It writes its authority into the webhooks before it is ready, so they exist before.
    with defined(kubectl, cluster, definitions, clean_up=clean_up), applied(kubectl, webhooks, clean_up=clean_up):
        process = ServerProcess("kueue", command, folder)
        try:
            _copy_certificate(cluster, folder)
            await_ready(process, health)
            try:
                yield
            finally:
                # They have finalizers.
                if clean_up:
                    kubectl(
                        "delete", "localqueues,workloads,clusterqueues,resourceflavors", "--all", "--all-namespaces"
                    )
        finally:
            process.stop()


def queue_objects(namespace: str, *, quota: int, resource: str = "pods") -> list[dict[str, Any]]:
    """A ResourceFlavor, a ClusterQueue with this quota in which a higher priority preempts, and its LocalQueue `team`.

    All have the name of the namespace, and so have two priority classes beside it, low and high. Processors and memory
    suffice for the pod that submits a RayJob, which requests some.
    """
    quotas = {resource: quota, "cpu": "100", "memory": "100Gi"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quotas.items()]
    return [
        {"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": namespace}},
        {
            "apiVersion": API_VERSION,
            "kind": "ClusterQueue",
            "metadata": {"name": namespace},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [
                    {"coveredResources": list(quotas), "flavors": [{"name": namespace, "resources": resources}]}
                ],
                "preemption": {"withinClusterQueue": "LowerPriority"},
            },
        },
        {
            "apiVersion": API_VERSION,
            "kind": "LocalQueue",
            "metadata": {"name": "team", "namespace": namespace},
            "spec": {"clusterQueue": namespace},
        },
        *(
            {
                "apiVersion": API_VERSION,
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": f"{namespace}-{name}"},
                "value": value,
            }
            for name, value in (("low", 10), ("high", 1000))
        ),
    ]


def _configuration(folder: Path, port: int, health: int) -> Path:
    path = folder / "kueue.json"
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": _NAMESPACE,
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": True, "webhookServiceName": _SERVICE, "webhookSecretName": _SECRET},
        "integrations": {"frameworks": _FRAMEWORKS},
        "featureGates": {"VisibilityOnDemand": False},
    }
    path.write_text(json.dumps(configuration), encoding="utf-8")
    return path


def _copy_certificate(cluster: DynamicClient, folder: Path) -> None:
    """Copy the certificate from the controller's Secret, which its pod would have as a volume."""

    def filled(secrets: list[Object]) -> Object | None:
        return next((each["data"] for each in secrets if each.get("data")), None)

    data = wait_until(
        cluster,
        ("v1", "Secret"),
        filled,
        "Kueue to make its certificate",
        namespace=_NAMESPACE,
        field_selector=f"metadata.name={_SECRET}",
    )
    for name in ("tls.key", "tls.crt"):
        (folder / name).write_bytes(base64.b64decode(data[name]))


def _service(port: int, path: str) -> dict[str, Any]:
    return {"service": {"name": _SERVICE, "namespace": _NAMESPACE, "port": port, "path": path}}


def _converted(definition: dict[str, Any], port: int) -> dict[str, Any]:
    if definition["spec"]["names"]["plural"] in _CONVERTED:
        webhook = {"clientConfig": _service(port, "/convert"), "conversionReviewVersions": ["v1"]}
        definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return definition


def _used(configuration: dict[str, Any], port: int) -> dict[str, Any]:
    """A configuration of webhooks, with the Service of the release, and without those of kinds that no test has."""
    configuration["metadata"]["name"] = f"kueue-{configuration['metadata']['name']}"
    used = []
    for webhook in configuration["webhooks"]:
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = _service(port, path)
        if any(each in path for each in _WEBHOOKS_USED):
            used.append(webhook)
    return configuration | {"webhooks": used}
