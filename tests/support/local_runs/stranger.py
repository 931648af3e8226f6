"""Scripts of tests/strangers as jobs of the local mode."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.local_runs.local_runs import LocalJob

SCRIPTS = Path(__file__).parents[2] / "strangers" / "scripts"


@dataclass(frozen=True)
class Stranger:
    """A script that was not written for Wattloop's tests, and the manifest that its author would write.

    Attributes:
        script: Name of the file in tests/strangers/scripts.
        metric: Name of the metric.
        threshold: Its target.
        default: The default batch size.
        candidates: The batch sizes.
        max_epochs: Limit of the epochs.
        arguments: Arguments of the script.
        target: More fields of the target.
        spec: More fields of the spec.
        gpus: Simulated GPUs.
        grows: Whether a run costs more each night.
    """

    script: str
    metric: str = "accuracy"
    threshold: str = "0.9"
    default: int = 128
    candidates: tuple[int, ...] = (16, 32, 64, 128, 256)
    max_epochs: int = 60
    arguments: tuple[str, ...] = ()
    target: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    gpus: int = 1
    grows: bool = False

    def job(self, folder: Path, **spec: Any) -> LocalJob:
        """Write script, device and manifest into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        local = LocalJob(folder)
        container = {"name": "train", "image": "none", "command": ["python", self.script], "args": [*self.arguments]}
        target = {"metric": self.metric, "threshold": self.threshold, **self.target}
        local.job(
            name=self.script.removesuffix(".py").replace("_", "-"),
            objective={"target": target, "maxEpochs": self.max_epochs},
            batchSize={"default": self.default, "candidates": list(self.candidates)},
            template={"job": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
            **self.spec,
            **spec,
        )
        for name in (self.script, "device.py"):
            shutil.copyfile(SCRIPTS / name, folder / name)
        return local
