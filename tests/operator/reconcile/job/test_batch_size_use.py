"""A job whose template does not pass the batch size to a script without the client gets a warning at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend
from wattloop.commands.main import main

LOGS: dict[str, Any] = {"reporting": {"source": "Logs"}, "batchSize": {"default": 64, "candidates": [32, 64]}}


def template(**container: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "train", "image": "digits:1", **container}]}
    return {"spec": {"template": {"spec": pod}}}


@pytest.mark.parametrize(
    ("spec", "is_told"),
    [
        ({"template": template(command=["python", "train.py"])}, True),
        ({"template": template(args=["--batch=$(WATTLOOP_BATCH_SIZE)"])}, False),
        ({"template": template(command=["sh", "-c", "train -b $WATTLOOP_PER_DEVICE_BATCH_SIZE"])}, False),
        ({"template": template(env=[{"name": "BATCH", "value": "$(WATTLOOP_BATCH_SIZE)"}])}, False),
        # The client has the batch size, and one batch size alone is no choice.
        ({"template": template(), "reporting": {"source": "Push"}}, False),
        ({"template": template(), "batchSize": {"default": 64, "candidates": [64]}}, False),
        ({"template": template(), "mode": "Fixed"}, False),
        ({"template": template(), "reporting": {"source": "KubeflowTrainer"}}, True),
    ],
)
def test_a_job_that_passes_no_batch_size_to_a_script_without_the_client_is_told_at_its_start(
    backend_with: Callable[..., ModelBackend],
    spec: dict[str, Any],
    is_told: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    backend = backend_with(**{**LOGS, **spec})
    for _ in range(2):
        backend.reconcile()
    conditions = {each.type: each for each in backend.job.status.conditions}
    assert ("BatchSizePassed" in conditions) is is_told
    assert [each.reason for each in backend.events].count("BatchSizePassed") == int(is_told)
    manifest = tmp_path / "job.yaml"
    manifest.write_text(json.dumps({**backend.job.to_wire(), "status": {}}))
    assert main(["validate", str(manifest), "--format", "json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert [each["warning"] for each in warnings] == ([conditions["BatchSizePassed"].message] if is_told else [])
