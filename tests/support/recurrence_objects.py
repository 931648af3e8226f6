"""A TrainingRecurrence as the API server stores it, for tests that give a cache or a transport its JSON."""

from typing import Any


def recurrence_object(
    name: str, uid: str = "recurrence-uid", version: str = "5", status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A recurrence of the job ``team/digits``.

    Args:
        status: Its status; without one it has none.
        spec: Fields of its spec that are others.
    """
    body = {
        "apiVersion": "wattloop.dev/v1alpha1",
        "kind": "TrainingRecurrence",
        "metadata": {"name": name, "namespace": "team", "uid": uid, "resourceVersion": version},
        "spec": {
            "jobRef": {"name": "digits", "uid": "job-uid"},
            "index": 0,
            "attempt": 0,
            "slot": "s",
            "scheduledTime": "2026-03-01T12:00:00Z",
            "batchSize": 64,
            "maxEpochs": 5,
            "target": {"metric": "accuracy", "threshold": "0.9"},
            "learningRateScale": "1",
            "energyWeightPercent": 50,
            "decision": {"policy": "ThompsonSampling", "kind": "Fixed", "reason": "r", "seed": "1", "digest": "d"},
            **spec,
        },
    }
    return body if status is None else body | {"status": status}
