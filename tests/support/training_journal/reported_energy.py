"""The reported energy of attempts compared with the actual energy of their pods, and the permitted difference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from support.control_plane.waiting import Object
from support.training_journal.energy_shares import EnergyUse

# The energy that a counter may not show yet: an A100 steps every 100 ms and draws at most 400 W.
STEP_JOULES = 0.1 * 400.0


@dataclass(frozen=True)
class ReportedEnergy:
    """One attempt.

    Attributes:
        reported_joules: The energy in its status; 0 without one.
        uncertainty_joules: The uncertainty in its status; None: unknown.
        by_agent: True if an agent reported it, from the assignment of the GPUs on, alignment included.
        devices: The number of GPUs in the report.
        use: The actual energy of its pods.
    """

    name: str
    reported_joules: float
    uncertainty_joules: float | None
    by_agent: bool
    devices: int
    use: EnergyUse

    @staticmethod
    def of(attempt: Object, energy_uses: Mapping[str, EnergyUse]) -> ReportedEnergy:
        """An attempt; a Job's pods are named after it, and it is named after its attempt."""
        name = attempt["metadata"]["name"]
        usage = attempt["status"].get("usage", {})
        used = EnergyUse()
        for pod, use in energy_uses.items():
            if pod.rpartition("-")[0] == name:
                used.worked_joules += use.worked_joules
                used.aligned_joules += use.aligned_joules
                used.disputed_joules += use.disputed_joules
                used.burst_joules += use.burst_joules
        return ReportedEnergy(
            name=name,
            reported_joules=float(usage.get("gpuEnergyJoules", 0)),
            uncertainty_joules=float(usage["uncertaintyJoules"]) if is_known(attempt) else None,
            by_agent=usage.get("energySource") == "Agent",
            devices=int(usage.get("devices", 0)),
            use=used,
        )

    @property
    def min_joules(self) -> float:
        """The minimum of a correct report; without a known uncertainty anything may be missing."""
        if self.uncertainty_joules is None:
            return 0.0
        return self.use.worked_joules - self.uncertainty_joules - self._reading_joules

    @property
    def max_joules(self) -> float:
        """The maximum of a correct report."""
        aligned = self.use.aligned_joules if self.by_agent else 0.0
        return self.use.worked_joules + aligned + (self.uncertainty_joules or 0.0) + self._reading_joules

    @property
    def _reading_joules(self) -> float:
        """The error that no report includes.

        Between two readings of a counter an agent spreads energy as power was, over our time. Simulated GPUs live
        faster: how much of it was before a pod's begin or end is not known.
        """
        burst = 0.0 if self.uncertainty_joules is None else self.use.burst_joules
        return 2 * STEP_JOULES * self.devices + self.use.disputed_joules + burst

    def __str__(self) -> str:
        known = "not known" if self.uncertainty_joules is None else f"{self.uncertainty_joules:.0f} J"
        whose = "agent" if self.by_agent else "process"
        return (
            f"{self.name}: told {self.reported_joules:.0f} J by its {whose}, uncertain: {known}; "
            f"worked {self.use.worked_joules:.0f} J, aligned {self.use.aligned_joules:.0f} J, "
            f"disputed {self.use.disputed_joules:.0f} J, burst {self.use.burst_joules:.0f} J"
        )


def is_known(attempt: Object) -> bool:
    """Whether an attempt's status claims to know all of its energy, within its uncertainty."""
    usage = attempt["status"].get("usage", {})
    whole = usage.get("energySource") != "Agent" or float(usage.get("coveragePercent", 0)) == 100
    return "uncertaintyJoules" in usage and whole


def not_reported(attempts: list[Object], pod_uids: Collection[str]) -> Iterator[str]:
    """Names of attempts whose agent knew of their pods, and the operator too, and whose energy is not known yet.

    Args:
        pod_uids: Of the pods that an agent's ledger has held.
    """
    for attempt in attempts:
        seen = {pod["uid"] for pod in attempt["status"].get("pods", [])}
        if seen.intersection(pod_uids) and not is_known(attempt):
            yield attempt["metadata"]["name"]
