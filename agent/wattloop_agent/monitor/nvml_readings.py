"""The monitor's GPUs through NVML. Reads alone: this module calls no power controller."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from wattloop.agent import EnergyReading, GpuDescription, PowerLimits
from wattloop.node_energy import Range
from wattloop.nvml import Gpu, GpuLost, NvmlError
from wattloop_agent.monitor.energy.samples import GpuSample
from wattloop_agent.monitor.gpu_condition import GpuCondition
from wattloop_agent.monitor.policies.limits import Asked
from wattloop_agent.nvml_gpus import NvmlGpus
from wattloop_agent.request_error import Reason, RequestError

Number = TypeVar("Number", int, float)

# A GPU that is lost makes NVML open anew at each question.
FAILED_SECONDS = 1.0
# The limit that was asked for costs a call into the GPU, the one in force does not; the two change together.
LIMIT_SECONDS = 5.0


class NvmlReadings:
    """`ReadableGpus` by NVML.

    Args:
        library: See `NvmlGpus`.
    """

    def __init__(self, library: Path | None = None) -> None:
        self._gpus = NvmlGpus(library)
        self._failed: dict[str, GpuSample] = {}
        self._limits_read: dict[str, _LimitRead] = {}

    @property
    def unnamed(self) -> Mapping[int, str]:
        """By index, the driver's word on each GPU that it can't even name: lost before the agent began."""
        return self._gpus.unnamed

    def describe(self) -> list[GpuDescription]:
        """All GPUs, with their limits where they have any and can say so."""
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

    def conditions(self, samples: Sequence[GpuSample] | None = None) -> list[GpuCondition]:
        """All GPUs; what one can't say is None, and its problem says why.

        Args:
            samples: Of all GPUs, taken just now; None: take them.
        """
        taken = {sample.uuid: sample for sample in (self.samples() if samples is None else samples)}
        return [self._condition(gpu, taken[gpu.uuid]) for gpu in self._gpus.all() if gpu.uuid in taken]

    def samples(self, uuids: Collection[str] | None = None, uncounted: Collection[str] = ()) -> list[GpuSample]:
        """Counters and power of these GPUs, or of all; one that failed is asked again after `FAILED_SECONDS`.

        Args:
            uuids: Of which GPUs; None: of all.
            uncounted: Those whose counter, which costs the driver milliseconds, is left alone.
        """
        gpus = [gpu for gpu in self._gpus.all() if uuids is None or gpu.uuid in uuids]
        return [self._sample(gpu, counts=gpu.uuid not in uncounted) for gpu in gpus]

    def uuid_of_device(self) -> dict[str, str]:
        """Under the name of its device node (``nvidia0``) and the uuids of its MIG devices, each GPU's uuid."""
        with self._gpus.refusing():
            names: dict[str, str] = {}
            for gpu in self._gpus.all():
                with contextlib.suppress(GpuLost):
                    # Read anew each time: an administrator may cut a GPU otherwise while we run.
                    parts = gpu.mig_device_uuids()
                    names |= {f"nvidia{gpu.minor_number}": gpu.uuid, **dict.fromkeys(parts, gpu.uuid)}
            return names

    def product(self, uuid: str) -> str:
        """A GPU's model."""
        return self._gpus.gpu(uuid).name

    def accepted(self, uuid: str, asked: Asked) -> Range:
        """The lowest and the highest that a GPU accepts."""
        gpu = self._gpus.gpu(uuid)
        with self._gpus.refusing():
            match asked:
                case Asked.POWER_LIMIT:
                    return gpu.power_limit_range_watts()
                case Asked.GRAPHICS_CLOCK:
                    clocks = gpu.graphics_clocks_megahertz()
                case Asked.MEMORY_CLOCK:
                    clocks = gpu.memory_clocks_megahertz()
            return float(min(clocks)), float(max(clocks))

    def _energy(self, gpu: Gpu) -> EnergyReading:
        with self._gpus.refusing():
            return EnergyReading(gpu.uuid, gpu.energy_millijoules(), gpu.clock_seconds())

    def _sample(self, gpu: Gpu, *, counts: bool) -> GpuSample:
        failed = self._failed.get(gpu.uuid)
        begin = time.monotonic()
        if failed is not None and begin < failed.end_seconds + FAILED_SECONDS:
            return failed
        try:
            counter = gpu.energy_millijoules() if counts else None
            end = time.monotonic()
            sample = GpuSample(gpu.uuid, gpu.name, begin, end, gpu.clock_seconds(), counter, gpu.power_watts())
        except NvmlError:
            return self._incomplete_sample(gpu, counts=counts)
        if failed is not None:
            del self._failed[gpu.uuid]
        return sample

    def _incomplete_sample(self, gpu: Gpu, *, counts: bool) -> GpuSample:
        """What a GPU says that does not say all; one that failed is left alone for a while."""
        asked = _Asked(self._gpus)
        begin = time.monotonic()
        counter = asked.ask(gpu.energy_millijoules) if counts else None
        end = time.monotonic()
        clock = asked.ask(gpu.clock_seconds) or 0.0
        power = asked.ask(gpu.power_watts)
        sample = GpuSample(gpu.uuid, gpu.name, begin, end, clock, counter, power, asked.problem)
        if asked.problem:
            self._failed[gpu.uuid] = sample
        return sample

    def _limits(self, gpu: Gpu) -> PowerLimits | None:
        try:
            with self._gpus.refusing():
                current = gpu.power_limit_watts()
                least, most = gpu.power_limit_range_watts()
                default = gpu.default_power_limit_watts()
        except RequestError as refusal:
            # A GPU that is lost says so to who asks something of it; of the others everything can be told.
            if refusal.reason in {Reason.NOT_SUPPORTED, Reason.GPU_LOST}:
                return None
            raise
        return PowerLimits(
            found_watts=current,
            current_watts=current,
            minimum_watts=least,
            maximum_watts=most,
            default_watts=default,
        )

    def _condition(self, gpu: Gpu, sample: GpuSample) -> GpuCondition:
        asked = _Asked(self._gpus, sample.problem)
        enforced = asked.ask(gpu.enforced_power_limit_watts)
        read = self._limits_read.get(gpu.uuid)
        if read is None or enforced is None or read.enforced_watts != enforced or time.monotonic() >= read.due_seconds:
            limit = asked.ask(gpu.power_limit_watts)
            read = self._limits_read[gpu.uuid] = _LimitRead(limit, enforced, time.monotonic() + LIMIT_SECONDS)
        if asked.problem:
            del self._limits_read[gpu.uuid]
        return GpuCondition(
            uuid=gpu.uuid,
            name=gpu.name,
            time_seconds=sample.clock_seconds,
            energy_millijoules=sample.counter_millijoules,
            power_watts=sample.power_watts,
            power_limit_watts=read.watts,
            enforced_power_limit_watts=enforced,
            graphics_clock_megahertz=asked.ask(gpu.graphics_clock_megahertz),
            problem=asked.problem,
        )


@dataclass(frozen=True)
class _LimitRead:
    watts: float | None
    enforced_watts: float | None
    due_seconds: float


@dataclass
class _Asked:
    gpus: NvmlGpus
    problem: str = field(default="")

    def ask(self, read: Callable[[], Number]) -> Number | None:
        try:
            return read()
        except NvmlError as error:
            refusal = self.gpus.refused(error)
            if refusal.reason is not Reason.NOT_SUPPORTED:
                self.problem = self.problem or refusal.message
            return None
