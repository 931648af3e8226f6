"""A training script as others have written it: it knows nothing of Wattloop, and would go on for a thousand epochs.

It prints its metric, and as Hugging Face's Trainer does it reports to Kubeflow Trainer where the environment
names its server. The metric reaches 1 after six epochs; if a test has created the file `unreachable` beside the
simulator's state, it reaches half of that at the most.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import ssl
import time
import urllib.request
from pathlib import Path

import nvml_simulator

EPOCHS_TO_TARGET = 6
STEPS_AN_EPOCH = 10
TERAFLOP_A_STEP = 312.0


def main() -> None:
    """Trains until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--epoch-seconds", type=float, required=True)
    arguments = parser.parse_args()
    gpus = os.environ["NVIDIA_VISIBLE_DEVICES"].split(",")
    machine = nvml_simulator.machine()
    machine.idle(gpus, 0)
    best = 0.5 if (machine.path.parent / "unreachable").exists() else 1.0
    for epoch in range(1, 1000):
        for _ in range(STEPS_AN_EPOCH):
            machine.occupy(gpus, work=TERAFLOP_A_STEP, intensity=0.8)
            time.sleep(arguments.epoch_seconds / STEPS_AN_EPOCH)
        progress = min(best, epoch / EPOCHS_TO_TARGET)
        print(f"[{epoch}] batch size {arguments.batch_size}: progress is {progress:.4f}", flush=True)
        if "KUBEFLOW_TRAINER_SERVER_URL" in os.environ:
            report(epoch, progress)


def report(epoch: int, progress: float) -> None:
    """Sends a status in the form of transformers' KubeflowCallback, which ignores the answer."""
    values = {"eval_progress": progress, "eval_runtime": 0.5 + epoch / 1000, "epoch": float(epoch)}
    status = {
        "lastUpdatedTime": datetime.datetime.now(datetime.UTC).isoformat(),
        "progressPercentage": min(100, round(progress * 100)),
        "metrics": [{"name": name, "value": str(value)} for name, value in values.items()],
    }
    token = Path(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text(encoding="utf-8").strip()
    request = urllib.request.Request(
        os.environ["KUBEFLOW_TRAINER_SERVER_URL"],
        data=json.dumps({"trainerStatus": status}).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        print(f"reported, answered {answer.status}", flush=True)


if __name__ == "__main__":
    main()
