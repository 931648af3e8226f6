"""The RecurringTrainingJob that tests of the operator apply."""

from typing import Any


def job_manifest(name: str = "digits", **spec: Any) -> dict[str, Any]:
    """A job that runs on request, with two batch sizes."""
    container = {"name": "train", "image": "example.invalid/train:1", "args": ["--batch", "$(WATTLOOP_BATCH_SIZE)"]}
    return {
        "apiVersion": "wattloop.dev/v1alpha1",
        "kind": "RecurringTrainingJob",
        "metadata": {"name": name},
        "spec": {
            "runRequest": "first",
            "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 50},
            "batchSize": {"default": 64, "candidates": [32, 64]},
            "power": {"mode": "None"},
            "template": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
            **spec,
        },
    }
