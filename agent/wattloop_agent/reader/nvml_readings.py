"""The reader's GPUs through NVML. Reads alone: this module calls no setter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from wattloop.agent import EnergyReading, GpuDescription, PowerLimits
from wattloop.nvml import Gpu
from wattloop_agent.nvml_gpus import NvmlGpus
from wattloop_agent.reader.meter import GpuCondition
from wattloop_agent.refusal import Reason, Refused

Number = TypeVar("Number", int, float)


class NvmlReadings:
    """`ReadableGpus` by NVML.

    Args:
        library: See `NvmlGpus`.
    """

    def __init__(self, library: Path | None = None) -> None:
        self._gpus = NvmlGpus(library)

    def describe(self) -> list[GpuDescription]:
        """All GPUs, with their limits where they have any."""
        return [
            GpuDescription(uuid=gpu.uuid, name=gpu.name, index=gpu.index, power_limits=self._limits(gpu))
            for gpu in self._gpus.all()
        ]

    def uuids(self) -> list[str]:
        """All GPUs, by index."""
        return [gpu.uuid for gpu in self._gpus.all()]

    def energy(self, uuids: Sequence[str]) -> list[EnergyReading]:
        """The counters of these GPUs."""
        return [self._energy(self._gpus.gpu(uuid)) for uuid in uuids]

    def conditions(self) -> list[GpuCondition]:
        """All GPUs; what one can't say is None, and its problem says why."""
        return [self._condition(gpu) for gpu in self._gpus.all()]

    def uuid_of_node(self) -> dict[int, str]:
        """By the number of its device node, each GPU's uuid."""
        with self._gpus.refusing():
            return {gpu.minor_number: gpu.uuid for gpu in self._gpus.all()}

    def _energy(self, gpu: Gpu) -> EnergyReading:
        with self._gpus.refusing():
            return EnergyReading(gpu.uuid, gpu.energy_millijoules(), gpu.clock_seconds())

    def _limits(self, gpu: Gpu) -> PowerLimits | None:
        try:
            with self._gpus.refusing():
                current = gpu.power_limit_watts()
                least, most = gpu.power_limit_range_watts()
                default = gpu.default_power_limit_watts()
        except Refused as refusal:
            if refusal.reason is Reason.NOT_SUPPORTED:
                return None
            raise
        return PowerLimits(
            found_watts=current,
            current_watts=current,
            minimum_watts=least,
            maximum_watts=most,
            default_watts=default,
        )

    def _condition(self, gpu: Gpu) -> GpuCondition:
        asked = _Asked(self._gpus)
        return GpuCondition(
            uuid=gpu.uuid,
            name=gpu.name,
            time_seconds=asked.ask(gpu.clock_seconds) or 0.0,
            energy_millijoules=asked.ask(gpu.energy_millijoules),
            power_watts=asked.ask(gpu.power_watts),
            power_limit_watts=asked.ask(gpu.power_limit_watts),
            enforced_power_limit_watts=asked.ask(gpu.enforced_power_limit_watts),
            graphics_clock_megahertz=asked.ask(gpu.graphics_clock_megahertz),
            problem=asked.problem,
        )


@dataclass
class _Asked:
    gpus: NvmlGpus
    problem: str = field(default="")

    def ask(self, read: Callable[[], Number]) -> Number | None:
        try:
            with self.gpus.refusing():
                return read()
        except Refused as refusal:
            if refusal.reason is not Reason.NOT_SUPPORTED:
                self.problem = self.problem or refusal.message
            return None
