"""Handles the verbs of the agent's socket, and forwards changes to the power controller."""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from wattloop.gpus.agent import GpuDescription
from wattloop.gpus.agent.answers import entry_of
from wattloop.wire.node_energy import Range
from wattloop_agent.gpu_setting import CLOCKS, GpuSetting
from wattloop_agent.json_lines import boolean, gpus_in_request, number
from wattloop_agent.monitor.gpu_meter import Meter, ProcessorMeter
from wattloop_agent.monitor.identity import SocketCaller
from wattloop_agent.monitor.leases import LeaseTracker, PowerControllerStatus
from wattloop_agent.monitor.policy_limits import PolicyAdmission, PolicyLimits
from wattloop_agent.monitor.power_controller_link import PowerControllerLink
from wattloop_agent.refusals import Reason, RequestError

NAMES = ("gpus", "energy", "hold_limit", "hold_clocks", "release", "list", "subscribe")


class MonitorVerbs:
    """Answers callers.

    Args:
        meter: Reads the GPUs.
        power_controller: Changes them.
        lease_tracker: Knows the leases.
        limits: Gives the policies in force; it raises `RequestError` where they are unknown.
    """

    def __init__(
        self,
        meter: Meter,
        power_controller: PowerControllerLink,
        lease_tracker: LeaseTracker,
        limits: Callable[[], PolicyLimits] = PolicyLimits,
    ) -> None:
        self._meter = meter
        self._power_controller = power_controller
        self._lease_tracker = lease_tracker
        self._admission = PolicyAdmission(meter, limits)
        self._processors = ProcessorMeter()

    async def answer(self, caller: SocketCaller, request: Mapping[str, object]) -> Any:
        """The result of one request (other than ``subscribe``, which has many).

        Raises:
            RequestError: With the reason.
        """
        match request["verb"]:
            case "gpus":
                return await self._gpus(caller)
            case "energy":
                return await self.readings(caller, request)
            case "hold_limit":
                return await self._hold_limit(caller, request)
            case "hold_clocks":
                return await self._hold_clocks(caller, request)
            case "release":
                return await self._release(caller, request)
            case "list":
                return await self._list(caller)
            case verb:
                raise RequestError(Reason.BAD_REQUEST, f"unknown verb {verb!r:.60}; there are {', '.join(NAMES)}")

    async def readings(self, caller: SocketCaller, request: Mapping[str, object]) -> list[dict[str, object]]:
        """The energy counters of the requested GPUs, or of all that the caller sees.

        Raises:
            RequestError: The caller may not read a GPU, or it can't be read.
        """
        if "gpus" in request:
            gpus = gpus_in_request(request)
            caller.require_seen(gpus)
            readings = await self._meter.energy(gpus, caller.owner)
        elif caller.has_gpus:
            readings = await self._meter.energy_of(caller.sees, caller.owner)
        else:
            readings = []
        return [entry_of(reading) for reading in readings]

    async def stream(
        self, caller: Callable[[], Awaitable[SocketCaller]], request: Mapping[str, object], interval_seconds: float
    ) -> AsyncGenerator[object, None]:
        """The same at an interval, with the processors' energy if the request has ``processors``.

        All but the first come from the sampler, so subscribers cost the driver nothing.

        Raises:
            RequestError: As `readings`, or the caller has ended.
        """
        with_processors = boolean(request, "processors")
        first = await self.readings(await caller(), request)
        gpus = tuple(str(reading["uuid"]) for reading in first)
        yield self._message(first, with_processors)
        with self._meter.sampler.subscribed(gpus, interval_seconds) as subscription:
            while True:
                await subscription.next()
                current = await caller()
                readings = self._sampled(current, gpus) or await self.readings(current, request)
                yield self._message(readings, with_processors)

    def _message(self, readings: list[dict[str, object]], with_processors: bool) -> object:
        if not with_processors:
            return readings
        seconds, joules = self._processors.joules()
        return {"gpus": readings, "processors": {"time_seconds": seconds, "joules": joules}}

    def _sampled(self, caller: SocketCaller, gpus: tuple[str, ...]) -> list[dict[str, object]]:
        """The readings of the last sample.

        Empty if one is missing; reading the driver then raises its error.
        """
        caller.require_seen(gpus)
        counted = self._meter.sampler.counted
        samples = [counted[uuid] for uuid in gpus if uuid in counted]
        if len(samples) < len(gpus):
            return []
        return [entry_of(self._meter.for_caller(each, caller.owner)) for each in samples]

    async def _gpus(self, caller: SocketCaller) -> list[dict[str, object]]:
        if not caller.has_gpus:
            # A caller without GPUs costs neither the driver nor the power controller a request.
            return []
        descriptions = await self._meter.gpus(caller.sees)
        status = await self._lease_tracker.refresh()
        found = {
            lease["uuid"]: lease["found"]
            for lease in status.leases
            if lease["setting"] == "power_limit" and lease["found"] is not None
        }
        return [await self._described(caller, gpu, found, status) for gpu in descriptions]

    async def _described(
        self, caller: SocketCaller, gpu: GpuDescription, found: Mapping[str, float], status: PowerControllerStatus
    ) -> dict[str, object]:
        limits = None
        if gpu.power_limits is not None:
            limits = asdict(gpu.power_limits)
            limits["found_watts"] = found.get(gpu.uuid, limits["current_watts"])
            accepted = gpu.power_limits.minimum_watts, gpu.power_limits.maximum_watts
            limits["allowed_watts"] = await self._allowed(caller, gpu.uuid, GpuSetting.POWER_LIMIT, accepted, status)
        clocks = None
        if gpu.clocks is not None:
            steps = gpu.clocks.supported_megahertz
            allowed = await self._allowed(caller, gpu.uuid, GpuSetting.GRAPHICS_CLOCK, (steps[0], steps[-1]), status)
            clocks = {"supported_megahertz": steps, "allowed_megahertz": allowed}
        return {"uuid": gpu.uuid, "name": gpu.name, "index": gpu.index, "power_limits": limits, "clocks": clocks}

    async def _allowed(
        self, caller: SocketCaller, gpu: str, setting: GpuSetting, device: Range, status: PowerControllerStatus
    ) -> Range | None:
        """The range of a setting that a caller may request; None: nothing."""
        if gpu in caller.shared:
            return None
        minimum, maximum = status.bounds.get(setting, (None, None))
        accepted = max(device[0], minimum or 0.0), min(device[1], maximum or math.inf)
        return await self._admission.allowed(caller, gpu, setting, accepted)

    async def _hold_limit(self, caller: SocketCaller, request: Mapping[str, object]) -> list[dict[str, object]]:
        return [
            {
                "uuid": each["uuid"],
                "found_watts": each["found"],
                "held_watts": each["held"],
                "enforced_watts": each["held"] if each["enforced"] is None else each["enforced"],
            }
            for each in await self._held(caller, request, GpuSetting.POWER_LIMIT, "watts")
        ]

    async def _hold_clocks(self, caller: SocketCaller, request: Mapping[str, object]) -> list[dict[str, object]]:
        domain = request.get("domain", "graphics")
        # The power controller refuses an unknown domain.
        clock = CLOCKS.get(domain) if isinstance(domain, str) else None
        held = await self._held(caller, request, clock, "megahertz", domain=domain)
        return [{"uuid": each["uuid"], "held_megahertz": each["held"]} for each in held]

    async def _held(
        self, caller: SocketCaller, request: Mapping[str, object], setting: GpuSetting | None, unit: str, **more: object
    ) -> Any:
        gpus = gpus_in_request(request)
        caller.require_own(gpus)
        value = number(request, unit)
        bounds = {} if setting is None else await self._admission.admit(caller, gpus, setting, value)
        forwarded = {"verb": request["verb"], "gpus": gpus, unit: value, **more, **bounds, "owner": caller.owner}
        if request.get("for_seconds") is not None:
            forwarded["for_seconds"] = number(request, "for_seconds")
        held = await self._power_controller.request(forwarded)
        self._lease_tracker.watch_owner(caller.owner)
        return held

    async def _release(self, caller: SocketCaller, request: Mapping[str, object]) -> list[str]:
        forwarded: dict[str, object] = {"verb": "release", "owner": caller.owner}
        if "gpus" in request:
            gpus = gpus_in_request(request)
            caller.require_seen(gpus)
            forwarded["gpus"] = gpus
        if "setting" in request:
            # The power controller refuses an unknown one.
            forwarded["setting"] = request["setting"]
        released = await self._power_controller.request(forwarded)
        return list(dict.fromkeys(each["uuid"] for each in released))

    async def _list(self, caller: SocketCaller) -> list[dict[str, object]]:
        if not caller.has_gpus:
            return []
        return [
            {**lease, "yours": lease["owner"] == caller.owner}
            for lease in (await self._lease_tracker.refresh()).leases
            if caller.sees(lease["uuid"])
        ]
