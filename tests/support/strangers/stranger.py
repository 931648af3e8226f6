"""A script of tests/strangers/scripts, and what its author would write in a manifest."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[2] / "strangers" / "scripts"
DEVICE = "device.py"
"""The accelerator of the scripts, beside each of them."""


@dataclass(frozen=True)
class Stranger:
    """A script that was not written for Wattloop's tests, and the manifest that its author would write.

    Attributes:
        script: Name of the file in tests/strangers/scripts.
        default: The default batch size.
        target: More fields of the target.
        spec: More fields of the spec.
        grows: Whether a run costs more each night.
        pace: Real seconds that a second of its GPU takes on a laptop. A script that waits for nobody is stopped in
            time only if its epochs take some.
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
    pace: float = 0.0

    @property
    def name(self) -> str:
        """Name of its job."""
        return self.script.removesuffix(".py").replace("_", "-")

    def fields(self, **spec: Any) -> dict[str, Any]:
        """The fields of the spec that are the same on a laptop and in a cluster, and those that a test replaces."""
        target = {"metric": self.metric, "threshold": self.threshold, **self.target}
        return {
            "objective": {"target": target, "maxEpochs": self.max_epochs},
            "batchSize": {"default": self.default, "candidates": list(self.candidates)},
            **self.spec,
            **spec,
        }
