"""Jobs of in_pods/paced_training.py: for tests that have to do something while a training runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.control_plane.commands import ClusterCommand
from support.control_plane.waiting import Object
from support.node.digits import container_of, digits_job

IN_PODS = Path(__file__).parents[1] / "in_pods"
HOSTILE_CLIENT = Path(__file__).parents[1] / "agents" / "hostile_client.py"
_SCRIPTS = "scripts"
_FOLDER = "/opt/scripts"


def put_scripts(kubectl: ClusterCommand, namespace: str) -> None:
    """Makes in_pods/ and the hostile client of the agent's tests known in a namespace, for pods to mount."""
    paths = [*sorted(IN_PODS.glob("*.py")), HOSTILE_CLIENT]
    content = {path.name: path.read_text(encoding="utf-8") for path in paths}
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _SCRIPTS, "namespace": namespace},
            "data": content,
        }
    )


def paced_job(
    name: str,
    *,
    epoch_seconds: float = 1.0,
    gpus: int = 1,
    script: str = "paced_training.py",
    environment: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A job with three batch sizes of which 64 is the best, without a schedule.

    Args:
        epoch_seconds: Real seconds that an epoch takes; simulated ones are ten at the least.
        spec: Fields of the spec to replace.
    """
    fields: dict[str, Any] = {
        "batchSize": {"default": 256, "candidates": [32, 64, 256]},
        "objective": {"target": {"metric": "progress", "threshold": "1"}, "maxEpochs": 40},
    }
    job = digits_job(name, gpus=gpus, **(fields | spec))
    container = container_of(job)
    container["command"] = ["python", f"{_FOLDER}/{script}"]
    variables = {"EPOCH_SECONDS": str(epoch_seconds), **(environment or {})}
    container["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    container["volumeMounts"] = [{"name": _SCRIPTS, "mountPath": _FOLDER, "readOnly": True}]
    pod = job["spec"]["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": _SCRIPTS, "configMap": {"name": _SCRIPTS}}]
    pod["terminationGracePeriodSeconds"] = 2
    return job
