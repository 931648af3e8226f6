"""Strangers as jobs of the node: their scripts in a ConfigMap, and a volume that keeps what they write."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.control_plane.commands import ClusterCommand
from support.control_plane.waiting import Object
from support.kubernetes_node.folders import NodeFolders
from support.kubernetes_node.node import About
from support.node.digits import container_of, digits_job
from support.strangers.stranger import SCRIPTS, Stranger

_SCRIPTS, _SCRIPTS_IN_POD = "strangers", "/opt/strangers"
_DATA, _DATA_IN_POD = "data", "/data"


def put_scripts(user: ClusterCommand, namespace: str) -> None:
    """Make the scripts known in a namespace, for pods to mount."""
    content = {path.name: path.read_text(encoding="utf-8") for path in sorted(SCRIPTS.glob("*.py"))}
    metadata = {"name": _SCRIPTS, "namespace": namespace}
    user.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": content})


def put_volume(node: About, kubectl: ClusterCommand, namespace: str, jobs: Iterable[str]) -> None:
    """Make a volume with a folder for each job, in which its runs find what the runs before have written."""
    folder = NodeFolders(Path(node.folder)).host / _DATA
    for job in jobs:
        (folder / job).mkdir(parents=True)
        # Trainings have users of their own.
        (folder / job).chmod(0o777)
    size, mode = {"storage": "1Gi"}, {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    claim = {"namespace": namespace, "name": _DATA}
    place = {"hostPath": {"path": str(folder), "type": "Directory"}, "claimRef": claim}
    volume = {**mode, **place, "capacity": size}
    request = {**mode, "volumeName": _DATA, "resources": {"requests": size}}
    kubectl.apply(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": _DATA}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim, "spec": request},
    )


def node_job(stranger: Stranger, name: str, pace: float, **spec: Any) -> Object:
    """The manifest of a stranger, with fields of its spec replaced.

    Args:
        pace: Real seconds that a second of its GPU takes.
    """
    job = digits_job(name, gpus=stranger.gpus, **stranger.fields(**spec))
    container = container_of(job)
    if not stranger.gpus:
        del container["resources"]
    container["command"] = ["python", f"{_SCRIPTS_IN_POD}/{stranger.script}"]
    container["args"] = [*stranger.arguments]
    container["workingDir"] = _DATA_IN_POD
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    container["env"].append({"name": "DEVICE_PACE", "value": str(pace)})
    container["volumeMounts"] = [
        {"name": _SCRIPTS, "mountPath": _SCRIPTS_IN_POD, "readOnly": True},
        {"name": _DATA, "mountPath": _DATA_IN_POD, "subPath": job["metadata"]["name"]},
    ]
    pod = job["spec"]["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [
        {"name": _SCRIPTS, "configMap": {"name": _SCRIPTS}},
        {"name": _DATA, "persistentVolumeClaim": {"claimName": _DATA}},
    ]
    pod["terminationGracePeriodSeconds"] = 2
    return job
