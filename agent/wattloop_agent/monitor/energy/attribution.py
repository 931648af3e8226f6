"""Attribution of GPU energy to containers: turns observed GPU assignments into usage intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any

from wattloop.wire.node_energy import PodGpuUsage
from wattloop_agent.monitor.energy.energy_snapshot import (
    EnergySnapshot,
    end_between,
    energy_from,
    latest_end,
    start_between,
)

Key = tuple[str, str, str]
# Ended intervals that the operator has not stored yet: four hours of eight GPUs with a job a minute.
MAX_ENDED = 2048
# After a longer time between two observations, the agent was away. Energy of that time goes to the
# pod that had the GPU, unless another pod can have used it.
AWAY_SECONDS = 10.0


@dataclass(frozen=True)
class Assignment:
    """A GPU that a container has, alone or shared."""

    pod_uid: str
    namespace: str
    pod: str
    container: str
    gpu: str
    shared: bool = False

    @property
    def key(self) -> Key:
        """Unique key: pod uid, container, GPU."""
        return self.pod_uid, self.container, self.gpu


@dataclass(frozen=True)
class AssignmentObservation:
    """The GPU assignments at a moment between begin and end on the monotonic clock.

    Attributes:
        begin_seconds: When the kubelet was asked.
        end_seconds: When the observation was complete.
        assignments: The assignments.
        first_processes: By pod uid, when the first process of a pod that was not observed before began.
        is_complete: Whether these are all: nothing that was listed and may be a GPU was left out.
    """

    begin_seconds: float
    end_seconds: float
    assignments: tuple[Assignment, ...]
    first_processes: Mapping[str, float] = field(default_factory=dict)
    is_complete: bool = False


@dataclass(frozen=True)
class ChangeWindow:
    """Snapshots of one GPU's account that bound a change of its assignment at an observation.

    Attributes:
        ends: Bounds of the end of an assignment that is gone: the begin of the observation before,
            and the end of this one.
        starts: Bounds of the start of a new assignment: the same, but after a reboot not before it.
        observed: Begin of this observation: an assignment that is still there had the GPU until then.
        away: Whether the agent was away between the two observations.
    """

    ends: tuple[EnergySnapshot, EnergySnapshot]
    starts: tuple[EnergySnapshot, EnergySnapshot]
    observed: EnergySnapshot
    away: bool = False


@dataclass(frozen=True)
class UsageInterval:
    """The interval in which a container has had a GPU, and the energy of earlier ones.

    Attributes:
        start: Account of the GPU at the start of the assignment.
        end: Account when the assignment ended, or when it was last known to exist.
        earlier_millijoules: Energy of earlier intervals of the same container and GPU.
        first_seconds: Energy clock at the start of the first interval.
    """

    assignment: Assignment
    start: EnergySnapshot
    end: EnergySnapshot
    ended: bool
    earlier_millijoules: float
    earlier_uncertainty_millijoules: float
    first_seconds: float

    def to_wire(self) -> PodGpuUsage:
        """Return the usage as it is reported."""
        energy, uncertainty = energy_from(self.start, self.end)
        return PodGpuUsage(
            pod_uid=self.assignment.pod_uid,
            namespace=self.assignment.namespace,
            pod=self.assignment.pod,
            container=self.assignment.container,
            gpu=self.assignment.gpu,
            shared=self.assignment.shared,
            energy_millijoules=int(self.earlier_millijoules + max(energy, 0.0)),
            uncertainty_millijoules=math.ceil(self.earlier_uncertainty_millijoules + uncertainty),
            start_time_seconds=self.first_seconds,
            time_seconds=max(self.end.time_seconds, self.first_seconds),
            ended=self.ended,
        )

    def to_record(self) -> dict[str, Any]:
        """Return the interval as JSON types."""
        return {
            **asdict(self.assignment),
            "start": astuple(self.start),
            "end": astuple(self.end),
            "ended": self.ended,
            "earlier": [self.earlier_millijoules, self.earlier_uncertainty_millijoules, self.first_seconds],
        }

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> UsageInterval:
        """Return the interval of a record; `KeyError`, `TypeError`, `ValueError`: it is invalid."""
        pod_uid, namespace, pod, container, gpu = (
            str(record[name]) for name in ("pod_uid", "namespace", "pod", "container", "gpu")
        )
        energy, uncertainty, first = record["earlier"]
        return UsageInterval(
            assignment=Assignment(pod_uid, namespace, pod, container, gpu, bool(record["shared"])),
            start=EnergySnapshot.from_record(record["start"]),
            end=EnergySnapshot.from_record(record["end"]),
            ended=bool(record["ended"]),
            earlier_millijoules=float(energy),
            earlier_uncertainty_millijoules=float(uncertainty),
            first_seconds=float(first),
        )


def updated_intervals(
    intervals: Mapping[Key, UsageInterval], assignments: Iterable[Assignment], windows: Mapping[str, ChangeWindow]
) -> list[UsageInterval]:
    """Return the intervals after an observation, oldest first.

    Assignments of GPUs without a window, which are by UUID, are ignored.
    """
    current = {each.key: each for each in with_shared_gpus(assignments) if each.gpu in windows}
    taken = {each.gpu for key, each in current.items() if key not in intervals or intervals[key].ended}
    updated = [_updated(interval, current.pop(key, None), windows, taken) for key, interval in intervals.items()]
    return updated + [_started(each, windows[each.gpu]) for each in current.values()]


def _updated(
    interval: UsageInterval, current: Assignment | None, windows: Mapping[str, ChangeWindow], taken: set[str]
) -> UsageInterval:
    if interval.assignment.gpu not in windows or (current is None and interval.ended):
        return interval
    window = windows[interval.assignment.gpu]
    if current is None:
        end = latest_end if window.away and interval.assignment.gpu not in taken else end_between
        return replace(interval, end=end(*window.ends).not_before(interval.end), ended=True)
    shared = replace(current, shared=current.shared or interval.assignment.shared)
    if not interval.ended:
        return replace(interval, assignment=shared, end=window.observed.not_before(interval.end))
    # The container has the GPU again. Energy used between the two intervals does not count.
    earlier = interval.to_wire()
    start = start_between(*window.starts).not_before(interval.end)
    return UsageInterval(
        assignment=shared,
        start=start,
        end=start,
        ended=False,
        earlier_millijoules=float(earlier.energy_millijoules),
        earlier_uncertainty_millijoules=float(earlier.uncertainty_millijoules),
        first_seconds=interval.first_seconds,
    )


def _started(current: Assignment, window: ChangeWindow) -> UsageInterval:
    start = start_between(*window.starts)
    return UsageInterval(current, start, start, False, 0.0, 0.0, start.time_seconds)


def with_shared_gpus(assignments: Iterable[Assignment]) -> list[Assignment]:
    """Return the assignments without duplicates, `shared` if several containers have the GPU.

    Example:
        >>> both = [Assignment("u1", "n", "p", "a", "GPU-1"), Assignment("u1", "n", "p", "b", "GPU-1")]
        >>> [each.shared for each in with_shared_gpus(both)]
        [True, True]
    """
    assigned = list({each.key: each for each in assignments}.values())
    containers = Counter(each.gpu for each in assigned)
    return [replace(each, shared=each.shared or containers[each.gpu] > 1) for each in assigned]


def drop_oldest_ended(intervals: Iterable[UsageInterval], limit: int = MAX_ENDED) -> tuple[list[UsageInterval], int]:
    """Return the intervals without the oldest ended ones above a limit, and the number dropped."""
    stored = list(intervals)
    surplus = sum(interval.ended for interval in stored) - limit
    if surplus <= 0:
        return stored, 0
    dropped = {id(interval) for interval in [each for each in stored if each.ended][:surplus]}
    return [interval for interval in stored if id(interval) not in dropped], surplus
