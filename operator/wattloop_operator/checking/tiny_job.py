"""The job of a check: one recurrence of a training that takes two epochs of no work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wattloop_operator.api.group import API_VERSION
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob

SCRIPT = """\
from wattloop import Run

with Run() as run:
    for epoch in run.epochs():
        run.report(metric=(epoch + 1) / 2)
"""


def tiny_job(
    namespace: str, name: str, image: str, *, pull_policy: str = "IfNotPresent", pull_secrets: Sequence[str] = ()
) -> dict[str, Any]:
    """The manifest of the job.

    Args:
        namespace: Where it runs.
        name: Its name.
        image: An image with Python and Wattloop's client, such as the operator's.
        pull_policy: When the image is pulled.
        pull_secrets: Names of secrets of the namespace with which it is.
    """
    container = {
        "name": "train",
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": ["python3", "-c", SCRIPT],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "imagePullSecrets": [{"name": secret} for secret in pull_secrets],
    }
    return {
        "apiVersion": API_VERSION,
        "kind": RecurringTrainingJob.resource.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "trigger": {"manual": {}},
            "runRequest": "check",
            "maxRecurrences": 1,
            "objective": {"target": {"metric": "progress", "threshold": "1"}, "maxEpochs": 4},
            "batchSize": {"default": 1, "candidates": [1]},
            "policy": {"fixed": {}},
            "power": {"limit": {"mode": "None"}},
            "retryPolicy": {"limit": 0},
            "template": {"job": {"template": {"spec": pod}}},
        },
    }
