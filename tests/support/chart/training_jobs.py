"""A RecurringTrainingJob to ask the admission policies about."""

import copy
from typing import Any

JOB = {
    "apiVersion": "wattloop.dev/v1alpha1",
    "kind": "RecurringTrainingJob",
    "metadata": {"name": "digits"},
    "spec": {
        "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}},
        "batchSize": {"default": 64, "candidates": [64]},
        "template": {
            "spec": {
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "train", "image": "x:1"}]}}
            }
        },
    },
}


def job(workload: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    made = copy.deepcopy(JOB)
    made["spec"] |= spec  # type: ignore[operator]
    if workload is not None:
        made["spec"]["template"] = workload  # type: ignore[index]
    return made
