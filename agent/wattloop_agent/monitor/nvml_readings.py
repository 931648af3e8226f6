"""The monitor's GPUs through NVML, read only."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from wattloop.energy.gpu_reading import GpuReading
from wattloop.gpus.agent import GpuDescription, GraphicsClocks, PowerLimits
from wattloop.gpus.nvml import EnergyCounters, Gpu, NvmlError, lists_all_processes
from wattloop.wire.node_energy import Range
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.monitor.gpu_sampler import GpuStatus
from wattloop_agent.monitor.gpu_users import GpuProcessList
from wattloop_agent.nvml_gpus import NvmlGpus
from wattloop_agent.refusals import Reason, RequestError

Number = TypeVar("Number", int, float)

# A lost GPU is not read again for so long: each attempt makes NVML start again.
FAILED_SECONDS = 1.0
# Reading the limit that is set costs a call into the GPU, reading the one in force does not; the two change together.
LIMIT_SECONDS = 5.0


class NvmlReadings:
    """The GPUs that the meter reads, by NVML. Every method raises `RequestError` with the driver's error.

    Args:
        library: See `NvmlGpus`.
    """

    def __init__(self, library: Path | None = None) -> None:
        self._gpus = NvmlGpus(library)
        self._failed: dict[str, GpuReading] = {}
        self._counters = EnergyCounters()
        self._limits_read: dict[str, _LimitRead] = {}
        # A GPU's ranges are the vendor's, and never change.
        self._max_limits: dict[str, float] = {}
        # As last reported: a failing read must not end the limits of a GPU, nor admit new ones.
        self._partitioned: dict[str, bool] = {}
        self._clocks: dict[str, GraphicsClocks | None] = {}

    @property
    def unnamed(self) -> Mapping[int, str]:
        """By index, the driver's error for each GPU that was lost before its uuid was known."""
        return self._gpus.unnamed

    def describe(self, seen: Callable[[str], bool]) -> list[GpuDescription]:
        """The GPUs that satisfy a predicate on their uuid, with their limits and clocks where they report any.

        If one of several fails, it has no limits, and the others are described. `found_watts` is the current limit,
        and no `allowed_…` is set, since leases and policies are not known here.
        """
        gpus = [gpu for gpu in self._gpus.all() if seen(gpu.uuid)]
        answers = [self._limits(gpu) for gpu in gpus]
        failures = [answer for answer in answers if isinstance(answer, RequestError)]
        if failures and len(failures) == len(gpus):
            raise failures[0]
        return [
            GpuDescription(
                gpu.uuid,
                gpu.name,
                gpu.index,
                None if isinstance(answer, RequestError) else answer,
                self._graphics_clocks(gpu),
            )
            for gpu, answer in zip(gpus, answers, strict=True)
        ]

    def uuids(self) -> list[str]:
        """All GPUs, by index."""
        return [gpu.uuid for gpu in self._gpus.all()]

    def energy(self, uuids: Sequence[str]) -> list[GpuReading]:
        """The counters of these GPUs, and the power in place of a counter that a GPU does not have."""
        return [self._energy(self._gpus.gpu(uuid)) for uuid in uuids]

    def statuses(self, samples: Sequence[GpuReading] | None = None) -> list[GpuStatus]:
        """The status of all GPUs, given samples of all; None: take them.

        A value that a GPU fails to report is None, and `problem` says why.
        """
        by_uuid = {sample.uuid: sample for sample in (self.samples() if samples is None else samples)}
        return [self._status(gpu, by_uuid[gpu.uuid]) for gpu in self._gpus.all() if gpu.uuid in by_uuid]

    def samples(self, uuids: Collection[str] | None = None, uncounted: Collection[str] = ()) -> list[GpuReading]:
        """Counters and power of these GPUs, or of all; of `uncounted` ones power only.

        A GPU that failed is read again after `FAILED_SECONDS`.
        """
        gpus = [gpu for gpu in self._gpus.all() if uuids is None or gpu.uuid in uuids]
        return [self._sample(gpu, with_counter=gpu.uuid not in uncounted) for gpu in gpus]

    def processes(self) -> dict[str, GpuProcessList]:
        """By uuid, the processes on each GPU; empty if there is no driver."""
        try:
            gpus = self._gpus.all()
        except RequestError:
            return {}
        return {gpu.uuid: self._processes(gpu) for gpu in gpus}

    def _processes(self, gpu: Gpu) -> GpuProcessList:
        try:
            return GpuProcessList(gpu.compute_processes(), is_complete=lists_all_processes())
        except NvmlError as error:
            return GpuProcessList(problem=self._gpus.request_error(error).message)

    def uuid_by_device(self) -> dict[str, str]:
        """Each GPU's uuid, by its device node (``nvidia0``) and by its MIG devices' uuids."""
        names: dict[str, str] = {}
        for gpu in self._gpus.all():
            try:
                # Read each time: an administrator may repartition a GPU while the agent runs.
                parts = gpu.mig_device_uuids()
                names |= {f"nvidia{gpu.minor_number}": gpu.uuid, **dict.fromkeys(parts, gpu.uuid)}
            except NvmlError as error:
                # The pods of the other GPUs are served meanwhile. Its own have no GPU until it
                # answers: nothing says what their devices are part of.
                self._gpus.request_error(error)
        return names

    def product(self, uuid: str) -> str:
        """A GPU's model."""
        return self._gpus.gpu(uuid).name

    def accepted(self, uuid: str, setting: GpuSetting) -> Range:
        """The lowest and the highest value that a GPU accepts."""
        allowed = self._gpus.allowed(uuid, setting)
        return allowed.minimum, allowed.maximum

    def _energy(self, gpu: Gpu) -> GpuReading:
        with self._gpus.request_errors():
            begin = time.monotonic()
            counter = self._counters.millijoules(gpu)
            end = time.monotonic()
            if counter is None:
                # Without either there is no energy, and the error says so.
                watts: float | None = gpu.instant_power_watts()
                return GpuReading(gpu.uuid, begin, end, None, watts, watts, gpu.clock_seconds(), gpu.name)
            watts = _OptionalReads(self._gpus).read(gpu.instant_power_watts)
            return GpuReading(gpu.uuid, begin, end, counter, watts, clock_seconds=gpu.clock_seconds())

    def _sample(self, gpu: Gpu, *, with_counter: bool) -> GpuReading:
        failed = self._failed.get(gpu.uuid)
        begin = time.monotonic()
        if failed is not None and begin < failed.end_seconds + FAILED_SECONDS:
            return failed
        try:
            counter = self._counters.millijoules(gpu) if with_counter else None
            end = time.monotonic()
            integrates = self._counters.is_missing(gpu)
            instant = gpu.instant_power_watts() if with_counter or integrates else None
            # The integral needs the power of this moment, not the mean of the last second.
            watts = instant if integrates else gpu.power_watts()
            sample = GpuReading(gpu.uuid, begin, end, counter, instant, watts, gpu.clock_seconds(), gpu.name)
        except NvmlError:
            return self._incomplete_sample(gpu, with_counter=with_counter)
        if failed is not None:
            del self._failed[gpu.uuid]
        return sample

    def _incomplete_sample(self, gpu: Gpu, *, with_counter: bool) -> GpuReading:
        """The sample of a GPU that does not report every value.

        One that failed is not read again for a while.
        """
        reads = _OptionalReads(self._gpus)
        begin = time.monotonic()
        counter = reads.read(gpu.energy_millijoules) if with_counter and not self._counters.is_missing(gpu) else None
        end = time.monotonic()
        clock = reads.read(gpu.clock_seconds) or 0.0
        power = reads.read(gpu.power_watts)
        sample = GpuReading(gpu.uuid, begin, end, counter, None, power, clock, gpu.name, reads.problem)
        if reads.problem:
            self._failed[gpu.uuid] = sample
        return sample

    def _limits(self, gpu: Gpu) -> PowerLimits | RequestError | None:
        try:
            with self._gpus.request_errors():
                current = gpu.power_limit_watts()
                minimum, maximum = gpu.power_limit_range_watts()
                default = gpu.default_power_limit_watts()
        except RequestError as refusal:
            # A lost GPU raises an error when it is set or read; its description says what it is.
            return None if refusal.reason in {Reason.NOT_SUPPORTED, Reason.GPU_LOST} else refusal
        return PowerLimits(
            found_watts=current,
            current_watts=current,
            minimum_watts=minimum,
            maximum_watts=maximum,
            default_watts=default,
        )

    def _graphics_clocks(self, gpu: Gpu) -> GraphicsClocks | None:
        if gpu.uuid not in self._clocks:
            try:
                with self._gpus.request_errors():
                    steps = tuple(sorted(set(gpu.graphics_clocks_megahertz())))
            except RequestError as refusal:
                if refusal.reason is not Reason.NOT_SUPPORTED:
                    # Read again at the next description; the limits say what is wrong with the GPU.
                    return None
                steps = ()
            self._clocks[gpu.uuid] = GraphicsClocks(steps) if steps else None
        return self._clocks[gpu.uuid]

    def _status(self, gpu: Gpu, sample: GpuReading) -> GpuStatus:
        reads = _OptionalReads(self._gpus, sample.problem)
        enforced = reads.read(gpu.enforced_power_limit_watts)
        read = self._limits_read.get(gpu.uuid)
        if read is None or enforced is None or read.enforced_watts != enforced or time.monotonic() >= read.due_seconds:
            limit = reads.read(gpu.power_limit_watts)
            read = self._limits_read[gpu.uuid] = _LimitRead(limit, enforced, time.monotonic() + LIMIT_SECONDS)
        if gpu.uuid not in self._max_limits:
            maximum = reads.read(lambda: gpu.power_limit_range_watts()[1])
            if maximum is not None:
                self._max_limits[gpu.uuid] = maximum
        partitioned = reads.read(gpu.is_partitioned)
        if partitioned is not None:
            self._partitioned[gpu.uuid] = bool(partitioned)
        if reads.problem:
            del self._limits_read[gpu.uuid]
        return GpuStatus(
            uuid=gpu.uuid,
            name=gpu.name,
            time_seconds=sample.clock_seconds,
            energy_millijoules=sample.energy_millijoules,
            power_watts=sample.power_watts,
            power_limit_watts=read.watts,
            enforced_power_limit_watts=enforced,
            graphics_clock_megahertz=reads.read(gpu.graphics_clock_megahertz),
            problem=reads.problem,
            max_power_limit_watts=self._max_limits.get(gpu.uuid),
            is_partitioned=self._partitioned.get(gpu.uuid, False),
        )


@dataclass(frozen=True)
class _LimitRead:
    watts: float | None
    enforced_watts: float | None
    due_seconds: float


@dataclass
class _OptionalReads:
    gpus: NvmlGpus
    problem: str = field(default="")

    def read(self, read: Callable[[], Number]) -> Number | None:
        try:
            return read()
        except NvmlError as error:
            refusal = self.gpus.request_error(error)
            if refusal.reason is not Reason.NOT_SUPPORTED:
                self.problem = self.problem or refusal.message
            return None
