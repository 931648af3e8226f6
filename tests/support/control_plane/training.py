"""A training that runs in a pod of the stand-in kubelet: it reads the pod's environment and reports as a pod would.

Its reports go through the real client's channel, with a real token of the pod. Its energy is made up, but follows from
the batch size, so that there is something to learn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.control_plane.waiting import Object
from wattloop.environment import RunEnvironment
from wattloop.messages import Answer, GpuEnergy, Report
from wattloop.reporting import ReportChannel

TokenOfPod = Callable[[Object, str], str]

AUDIENCE = "wattloop.dev/report"
MAX_POWER_WATTS = 300.0
POWER_WATTS = 200.0
EPOCH_SECONDS = 10.0


def environment_of(pod: Object, container: int = 0) -> dict[str, str]:
    """The variables of a pod's container, as its process would see them."""
    return {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][container].get("env", [])}


@dataclass
class Training:
    """One training process.

    Args:
        pod: Its pod.
        token_of_pod: Gives the token that its projected volume would hold.
        folder: Where the token is written.
        url: The reporting API, in place of what the environment says.
        patience_seconds: How long it tries to deliver a report.
    """

    pod: Object
    token_of_pod: TokenOfPod
    folder: Path
    url: str = ""
    patience_seconds: float = 60.0

    def __post_init__(self) -> None:
        self.environment = RunEnvironment.read(environment_of(self.pod))
        token = self.folder / f"{self.pod['metadata']['uid']}.token"
        token.write_text(self.token_of_pod(self.pod, AUDIENCE))
        self._channel = ReportChannel(self.url or self.environment.report_url, str(token))
        self._sequence = 0

    def report(self, epoch: float, metric: float | None, *, finished: bool = False) -> Answer | None:
        """Report the end of an epoch; None where it was not taken in."""
        self._sequence += 1
        return self._channel.send_last(
            Report(
                sequence=self._sequence,
                epoch=epoch,
                metric=metric,
                evaluations=0 if metric is None else round(epoch),
                gpus=(self._gpu(epoch),),
                gpu_product="Stand-in GPU",
                max_power_limit_watts=MAX_POWER_WATTS,
                finished=finished,
            ),
            self.patience_seconds,
        )

    def reach_target(self) -> None:
        """Train until the target, which takes the longer the further the batch size is from 64."""
        target = self.environment.target
        assert target is not None
        assert self.environment.batch_size is not None
        epochs = epochs_to_target(self.environment.batch_size)
        for epoch in range(1, epochs + 1):
            metric = target.threshold if epoch == epochs else target.threshold - 0.1
            answer = self.report(float(epoch), metric, finished=epoch == epochs)
            assert answer is not None
            if answer.stop:
                break

    def _gpu(self, epoch: float) -> GpuEnergy:
        seconds = EPOCH_SECONDS * epoch
        start = 1_000_000
        energy = start + round(1000 * POWER_WATTS * seconds)
        return GpuEnergy(f"GPU-{self.pod['metadata']['uid']}", start, energy, 100.0, 100.0 + seconds)


def epochs_to_target(batch_size: int) -> int:
    """How many epochs the stand-in training takes."""
    return 2 + abs(batch_size.bit_length() - 7)
