"""What the nodes' agents say of an attempt: whether it covers the attempt's pods, and whether the processes agree.

An agent counts from when a pod was given its GPUs until it gave them back; a training process from its first report to
its last. So the process's energy is a part of the agent's, and the rest is what the GPUs can have drawn in the rest of
the time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from wattloop_operator.api.attempt import GpuReading, Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.domain.snapshot import Snapshot, WorkloadState

# Ends of workloads are written in whole seconds.
ROUNDED_SECONDS = 1
# A process reads the counter as it stands: an H200's steps every 100 ms.
COUNTER_STEP_SECONDS = 0.1


@dataclass(frozen=True)
class AgentEnergy:
    """What the agents say of one attempt; energy and time as far as they were heard.

    Attributes:
        energies: Of each pod, container and GPU.
        expected_devices: How many GPUs the attempt has, as far as others know.
    """

    energies: tuple[PodEnergy, ...]
    expected_devices: int

    @property
    def energy_millijoules(self) -> int:
        """Energy of all pods on all GPUs."""
        return sum(each.energy_millijoules for each in self.energies)

    @property
    def uncertainty_millijoules(self) -> int:
        """How far that may be off: at worst all errors go one way."""
        return sum(each.uncertainty_millijoules for each in self.energies)

    @property
    def duration_seconds(self) -> float:
        """From the first GPU given to the last one given back, on the clock of one node."""
        spans: dict[str, list[float]] = defaultdict(list)
        for each in self.energies:
            spans[each.ledger] += [each.start_time_seconds, each.time_seconds]
        return max((max(times) - min(times) for times in spans.values()), default=0.0)

    @property
    def gpus(self) -> frozenset[str]:
        """The GPUs' uuids."""
        return frozenset(each.gpu_uuid for each in self.energies)

    @property
    def gpu_product(self) -> str:
        """The GPUs' model; empty: not known."""
        return next((each.gpu_product for each in self.energies if each.gpu_product), "")

    @property
    def shared(self) -> bool:
        """Whether others could use one of the GPUs too."""
        return any(each.shared for each in self.energies)

    @property
    def ended(self) -> bool:
        """Whether it is the agents' last word: every GPU that is known of was given back."""
        return self._knows_all and all(each.ended for each in self.energies)

    def covers(self, until: datetime) -> bool:
        """Whether it tells of every GPU that is known of, up to this moment."""
        return self._knows_all and all(each.ended or each.reported_at >= until for each in self.energies)

    def coverage_percent(self, started: datetime | None, until: datetime) -> float | None:
        """The part of the GPUs' time that it tells of; None where it is not known when the attempt started."""
        if self.covers(until):
            return 100.0
        whole = 0.0 if started is None else (until - started).total_seconds() * max(self.expected_devices, 1)
        told = sum(each.time_seconds - each.start_time_seconds for each in self.energies)
        return round(min(100 * told / whole, 100.0), 2) if whole > 0 else None

    @property
    def _knows_all(self) -> bool:
        return bool(self.energies) and len(self.gpus) >= self.expected_devices


def agent_energy(energies: Sequence[PodEnergy], progress: Progress, devices: int) -> AgentEnergy:
    """The agents' word beside what others know of the attempt's GPUs.

    Args:
        energies: What the agents say.
        progress: What the processes say.
        devices: GPUs that the attempt's containers ask for.
    """
    reported = {gpu.uuid for gpu in progress.gpus}
    told = {each.gpu_uuid for each in energies}
    return AgentEnergy(tuple(energies), max(devices, len(told | reported) if reported else 0))


def agent_energy_of(snapshot: Snapshot, recurrence: TrainingRecurrence) -> AgentEnergy:
    """The agents' word on one attempt of a job."""
    energies = snapshot.pod_energies.get(recurrence.metadata.name, ())
    devices = snapshot.devices if snapshot.agent_patience_seconds else 0
    return agent_energy(energies, recurrence.status.progress or Progress(), devices)


def awaited_until(
    word: AgentEnergy, workload: WorkloadState | None, patience_seconds: int, *, awaited_since: datetime | None
) -> datetime | None:
    """Until when an attempt that has ended waits for the agents' last word; None: it does not.

    Args:
        word: What the agents have said so far.
        workload: The attempt's workload; its end is of another machine's clock.
        patience_seconds: How long it waits; 0: no agents report.
        awaited_since: Since when it waits, by the clock that the wait is measured by; None: it was just seen to end.
    """
    if workload is None or not workload.owned or workload.ended_at is None or not workload.phase.ended:
        return None
    heard_of = word.energies or word.expected_devices
    if not patience_seconds or not heard_of or word.ended:
        return None
    begin = workload.ended_at if awaited_since is None else min(workload.ended_at, awaited_since)
    return begin + timedelta(seconds=patience_seconds)


def told_until(workload: WorkloadState | None, patience_seconds: int, now: datetime) -> datetime:
    """Up to when the agents must have told of an attempt to be taken at their word."""
    if workload is not None and workload.ended_at is not None:
        return workload.ended_at + timedelta(seconds=ROUNDED_SECONDS)
    return now - timedelta(seconds=patience_seconds)


def processes_uncertainty_joules(word: AgentEnergy, progress: Progress) -> float:
    """How far the processes' word may be off from what the attempt has used, by an agents' word that covers all of it.

    What the processes counted is a part of it, and it is no more than the agents tell at most. How long it had its GPUs
    says less: the agents know that no better than when pods came and went. Infinite where it is not known what the GPUs
    can draw between two steps of their counters.
    """
    if not progress.max_power_limit_watts:
        return math.inf
    counted = sum(gpu.energy_millijoules - gpu.start_energy_millijoules for gpu in progress.gpus)
    rest = max(word.energy_millijoules + word.uncertainty_millijoules - counted, 0) / 1000
    return rest + 2 * COUNTER_STEP_SECONDS * float(progress.max_power_limit_watts)


def disagreement(word: AgentEnergy, progress: Progress) -> str:
    """Where a process's word and the agents' cannot both be right, within their uncertainty; empty: they agree.

    Of shared GPUs a process counts what all use, so nothing follows from comparing them.
    """
    if word.shared:
        return ""
    found = (_Compared.of(gpu, word, progress).difference() for gpu in progress.gpus)
    return "; ".join(text for text in found if text)


@dataclass(frozen=True)
class _Compared:
    """One GPU in both words; `most_watts` is what it can draw, 0 where that is not known."""

    uuid: str
    process_joules: float
    agent_joules: float
    agent_uncertainty_joules: float
    rest_seconds: float
    most_watts: float

    @staticmethod
    def of(gpu: GpuReading, word: AgentEnergy, progress: Progress) -> _Compared:
        told = [each for each in word.energies if each.gpu_uuid == gpu.uuid]
        whole = sum(each.time_seconds - each.start_time_seconds for each in told)
        return _Compared(
            gpu.uuid,
            (gpu.energy_millijoules - gpu.start_energy_millijoules) / 1000,
            sum(each.energy_millijoules for each in told) / 1000,
            sum(each.uncertainty_millijoules for each in told) / 1000,
            max(whole - float(gpu.time_seconds - gpu.start_time_seconds), 0.0),
            float(progress.max_power_limit_watts or 0) / len(progress.gpus),
        )

    def difference(self) -> str:
        off = self.agent_uncertainty_joules + 2 * COUNTER_STEP_SECONDS * self.most_watts
        more = self.agent_joules - self.process_joules
        too_much = self.most_watts > 0 and more > self.rest_seconds * self.most_watts + off
        if more >= -off and not too_much:
            return ""
        return (
            f"GPU {self.uuid}: the process counted {self.process_joules:.1f} J, its agent {self.agent_joules:.1f} J, "
            f"known to {off:.1f} J"
        )
