"""The node agents' reports about an attempt: whether they cover its pods, and agree with the processes' reports.

An agent counts from the moment a pod gets its GPUs until it releases them, a process from its first report to its last.
So the process's energy is part of the agent's, and the difference is at most what the GPUs can draw in the rest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from wattloop_operator.domain.gpu_readings import GpuIntervals
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.domain.snapshot import Snapshot, WorkloadState
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.energy.counted_intervals import devices_at_once

# Kubernetes writes the end of a workload in whole seconds.
END_ROUNDING_SECONDS = 1
# A process reads the energy counter between two of its steps. An H200's steps every 100 ms.
COUNTER_STEP_SECONDS = 0.1


@dataclass(frozen=True)
class AgentEnergy:
    """The node agents' reports about one attempt, up to the latest one.

    Attributes:
        energies: Energy of each pod, container and GPU.
        expected_devices: How many GPUs the attempt has, from other sources.
    """

    energies: tuple[PodEnergy, ...]
    expected_devices: int

    @property
    def energy_millijoules(self) -> int:
        """Energy of all pods on all GPUs."""
        return sum(each.energy_millijoules for each in self.energies)

    @property
    def uncertainty_millijoules(self) -> int:
        """Bound on the error of the energy: in the worst case all errors have the same sign."""
        return sum(each.uncertainty_millijoules for each in self.energies)

    @property
    def duration_seconds(self) -> float:
        """Time in which pods had GPUs. What lies between a pod and the one that replaced it does not count."""
        seconds, until = 0.0, -math.inf
        for begin, end, _ in sorted(self._held):
            seconds += max(end - max(begin, until), 0.0)
            until = max(until, end)
        return seconds

    @property
    def devices(self) -> int:
        """The most GPUs that pods had at once; a pod and the one that replaced it may seem to overlap for a moment."""
        middles = ((begin + end) / 2 for begin, end, _ in self._held)
        return max((len({gpu for low, high, gpu in self._held if low <= each <= high}) for each in middles), default=0)

    @property
    def _held(self) -> list[tuple[float, float, str]]:
        """Begin, end and GPU of each assignment, on the clock of the node, or on the operator's for several."""
        if len({each.ledger for each in self.energies}) <= 1:
            return [(each.start_time_seconds, each.time_seconds, each.gpu_uuid) for each in self.energies]
        ends = ((each.measured_at or each.reported_at).timestamp() for each in self.energies)
        return [
            (end - (each.time_seconds - each.start_time_seconds), end, each.gpu_uuid)
            for each, end in zip(self.energies, ends, strict=True)
        ]

    @property
    def gpus(self) -> frozenset[str]:
        """The GPUs' uuids."""
        return frozenset(each.gpu_uuid for each in self.energies)

    @property
    def gpu_product(self) -> str:
        """The GPUs' model; empty if it is not known."""
        return next((each.gpu_product for each in self.energies if each.gpu_product), "")

    @property
    def max_power_limit_watts(self) -> int | None:
        """Sum of the highest power limits of the GPUs that pods had at once; None if one is not known."""
        limits = {each.gpu_uuid: 0.0 for each in self.energies}
        for each in self.energies:
            limits[each.gpu_uuid] = max(limits[each.gpu_uuid], each.max_power_limit_watts or 0.0)
        highest = sorted(limits.values(), reverse=True)[: self.devices]
        return (round(sum(highest)) or None) if all(limits.values()) else None

    @property
    def shared(self) -> bool:
        """Whether other pods could use one of the GPUs too."""
        return any(each.shared for each in self.energies)

    @property
    def final(self) -> bool:
        """Whether this is the agents' final report: every known GPU was released."""
        return self.includes_all_gpus and all(each.ended for each in self.energies)

    def covers(self, until: datetime) -> bool:
        """Whether the reports include every known GPU up to this moment."""
        reached = (each.ended or (each.measured_at or each.reported_at) >= until for each in self.energies)
        return self.includes_all_gpus and all(reached)

    def coverage_percent(self, started: datetime | None, until: datetime) -> float | None:
        """The part of the GPUs' time that the reports cover. None if the start of the attempt is not known."""
        if self.covers(until):
            return 100.0
        total = 0.0 if started is None else (until - started).total_seconds() * max(self.expected_devices, 1)
        covered = sum(each.time_seconds - each.start_time_seconds for each in self.energies)
        return round(min(100 * covered / total, 100.0), 2) if total > 0 else None

    @property
    def includes_all_gpus(self) -> bool:
        """Whether the reports include as many GPUs as the attempt has."""
        return bool(self.energies) and len(self.gpus) >= self.expected_devices


def agent_energy(energies: Sequence[PodEnergy], progress: Progress, devices: int) -> AgentEnergy:
    """The agents' reports, with the number of GPUs that other sources give."""
    of_processes = {gpu.uuid for gpu in progress.gpus}
    of_agents = {each.gpu_uuid for each in energies}
    return AgentEnergy(tuple(energies), max(devices, len(of_agents | of_processes) if of_processes else 0))


def agent_energy_of(snapshot: Snapshot, recurrence: TrainingAttempt) -> AgentEnergy:
    """The agents' reports about one attempt of a job."""
    energies = snapshot.pod_energies.get(recurrence.metadata.name, ())
    devices = snapshot.devices if snapshot.agent_report_timeout_seconds else 0
    return agent_energy(energies, recurrence.progress, devices)


def coverage_end(workload: WorkloadState | None, timeout_seconds: int, now: datetime) -> datetime:
    """The time up to which the agents' reports must extend to cover the attempt."""
    if workload is not None and workload.ended_at is not None:
        return workload.ended_at + timedelta(seconds=END_ROUNDING_SECONDS)
    return now - timedelta(seconds=timeout_seconds)


def process_uncertainty_joules(agents: AgentEnergy, progress: Progress) -> float:
    """Bound on the error of the processes' energy, from agents' reports of the whole attempt.

    The processes' energy is part of the attempt's, and the attempt's is at most the agents' plus its uncertainty. The
    time that the attempt had its GPUs gives a weaker bound, because the agents only know when pods came and went.

    Joules; infinite if the GPUs' power between two steps of their counters is not known.
    """
    if not progress.max_power_limit_watts:
        return math.inf
    counted = sum(gpu.used_millijoules for gpu in progress.gpus)
    rest = max(agents.energy_millijoules + agents.uncertainty_millijoules - counted, 0) / 1000
    rest += sum(gpu.total_uncertainty_millijoules or 0 for gpu in progress.gpus) / 1000
    return rest + 2 * COUNTER_STEP_SECONDS * float(progress.max_power_limit_watts)


def disagreement(agents: AgentEnergy, progress: Progress) -> str:
    """The GPUs for which the processes' and the agents' energies contradict each other.

    Empty if they agree.

    On shared GPUs a process counts the energy of all users, so they cannot be compared.
    """
    if agents.shared:
        return ""
    return "; ".join(filter(None, (_difference(gpu, agents, progress) for gpu in progress.gpus)))


def _difference(gpu: GpuIntervals, agents: AgentEnergy, progress: Progress) -> str:
    """How the energies of one GPU contradict each other; empty if they do not."""
    of_gpu = [each for each in agents.energies if each.gpu_uuid == gpu.uuid]
    process_joules = gpu.used_millijoules / 1000
    agent_joules = sum(each.energy_millijoules for each in of_gpu) / 1000
    agent_seconds = sum(each.time_seconds - each.start_time_seconds for each in of_gpu)
    max_watts = float(progress.max_power_limit_watts or 0) / devices_at_once(progress.gpus)
    # Those of the agent's and of the process' integrated power, and the steps of the counter.
    uncertainty = sum(each.uncertainty_millijoules for each in of_gpu) + (gpu.total_uncertainty_millijoules or 0)
    uncertainty_joules = uncertainty / 1000 + 2 * COUNTER_STEP_SECONDS * max_watts
    surplus = agent_joules - process_joules
    rest_joules = max(agent_seconds - float(gpu.used_seconds), 0.0) * max_watts
    if surplus >= -uncertainty_joules and not (max_watts > 0 and surplus > rest_joules + uncertainty_joules):
        return ""
    return (
        f"GPU {gpu.uuid}: the process counted {process_joules:.1f} J, its agent {agent_joules:.1f} J, "
        f"with an uncertainty of {uncertainty_joules:.1f} J"
    )
