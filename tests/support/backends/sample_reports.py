"""What reaches the operator of a running attempt: a report of its process, and an agent's energy of one of its GPUs."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from wattloop.wire.training_messages import GpuEnergy, LimitMeasurement, PublishedModel, Report
from wattloop_operator.domain.records import PodEnergy

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def report(
    *,
    process: str = "first",
    sequence: int = 1,
    epoch: float = 1,
    metric: float | None = None,
    joules: float = 1000.0,
    seconds: float = 10.0,
    finished: bool = False,
    profile: tuple[LimitMeasurement, ...] = (),
    gpus: int = 1,
    diverged: bool = False,
    rank: int = 0,
    published: PublishedModel | None = None,
    power_limit_watts: float | None = None,
    shared: bool | None = False,
) -> Report:
    """A report of a process with GPUs of at most 400 W."""
    energy = tuple(
        GpuEnergy(f"GPU-{index}", 5000, 5000 + round(joules * 1000 / gpus), 100.0, 100.0 + seconds, shared=shared)
        for index in range(gpus)
    )
    return Report(
        process=process,
        sequence=sequence,
        epoch=epoch,
        metric=metric,
        evaluations=0 if metric is None and not diverged else sequence,
        diverged=diverged,
        gpus=energy,
        gpu_product="NVIDIA A100",
        max_power_limit_watts=400.0 * gpus,
        finished=finished,
        profile=profile,
        rank=rank,
        published=published,
        power_limit_watts=power_limit_watts,
    )


def pod_energy(
    joules: float = 1200.0, seconds: float = 12.0, *, gpu: int = 0, ended: bool = True, **changes: Any
) -> PodEnergy:
    """An agent's energy of one GPU of a pod.

    By default it has two seconds and 200 J more than `report`.
    """
    energy = PodEnergy(
        job_uid="job-uid",
        recurrence=0,
        attempt=0,
        node="node-1",
        ledger="ledger",
        pod_uid="pod-uid",
        pod="digits-0-abc",
        container="train",
        gpu_uuid=f"GPU-{gpu}",
        gpu_product="NVIDIA A100",
        shared=False,
        energy_millijoules=round(joules * 1000),
        uncertainty_millijoules=3000,
        start_time_seconds=99.0,
        time_seconds=99.0 + seconds,
        ended=ended,
        reported_at=START,
    )
    return replace(energy, **changes)
