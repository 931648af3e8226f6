"""A training in a pod of the simulated kubelet: it reads the pod's environment and reports as a pod does.

Its reports use the real client and a real token of the pod. Its energy is simulated and depends on
the batch size, so that the policy can learn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.control_plane.waiting import LONGEST_WAIT_SECONDS, Object
from wattloop.run.report_channel import ReportChannel
from wattloop.wire.environment import RunEnvironment
from wattloop.wire.training_messages import Answer, GpuEnergy, LimitMeasurement, Report

TokenOfPod = Callable[[Object, str], str]

AUDIENCE = "wattloop.dev/report"
MAX_POWER_WATTS = 300.0
POWER_WATTS = 200.0
EPOCH_SECONDS = 10.0


def environment_of(pod: Object, container: int = 0) -> dict[str, str]:
    """The environment of a pod's container."""
    return {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][container].get("env", [])}


@dataclass
class Training:
    """One training process.

    Args:
        token_of_pod: Returns the token of its projected volume.
        url: URL of the reporting API; default: that of the environment.
    """

    pod: Object
    token_of_pod: TokenOfPod
    folder: Path
    url: str = ""
    timeout_seconds: float = LONGEST_WAIT_SECONDS

    def __post_init__(self) -> None:
        self.environment = RunEnvironment.read(environment_of(self.pod))
        token = self.folder / f"{self.pod['metadata']['uid']}.token"
        token.write_text(self.token_of_pod(self.pod, AUDIENCE))
        # As the kubelet makes it when the container starts.
        self.termination_message = self.folder / f"{self.pod['metadata']['uid']}.message"
        self.termination_message.touch()
        self.channel = ReportChannel(
            self.url or self.environment.report_url,
            str(token),
            termination_message_path=str(self.termination_message) if self.environment.termination_message_path else "",
        )
        self._sequence = 0

    def report(
        self,
        epoch: float,
        metric: float | None,
        *,
        finished: bool = False,
        profile: tuple[LimitMeasurement, ...] = (),
        with_gpus: bool = True,
    ) -> Answer | None:
        """Report the end of an epoch, and measured power limits; None if the report was not accepted.

        Without the agent's socket a process knows no GPUs.
        """
        self._sequence += 1
        return self.channel.send_last(
            Report(
                process="p",
                sequence=self._sequence,
                epoch=epoch,
                metric=metric,
                evaluations=0 if metric is None else round(epoch),
                gpus=(self._gpu(epoch),) if with_gpus else (),
                gpu_product="Simulated GPU" if with_gpus else "",
                max_power_limit_watts=MAX_POWER_WATTS if with_gpus else 0.0,
                finished=finished,
                profile=profile,
            ),
            self.timeout_seconds,
        )

    def reach_target(self) -> None:
        """Train until the target; the further the batch size is from 64, the longer it takes."""
        target = self.environment.target
        assert target is not None
        assert self.environment.batch_size is not None
        epochs = epochs_to_target(self.environment.batch_size)
        for epoch in range(1, epochs + 1):
            metric = target.threshold if epoch == epochs else target.threshold - 0.1
            answer = self.report(float(epoch), metric, finished=epoch == epochs)
            if answer.stop:
                break

    def _gpu(self, epoch: float) -> GpuEnergy:
        seconds = EPOCH_SECONDS * epoch
        start = 1_000_000
        energy = start + round(1000 * POWER_WATTS * seconds)
        return GpuEnergy(f"GPU-{self.pod['metadata']['uid']}", start, energy, 100.0, 100.0 + seconds)


def epochs_to_target(batch_size: int) -> int:
    """Number of epochs of the simulated training."""
    return 2 + abs(batch_size.bit_length() - 7)
