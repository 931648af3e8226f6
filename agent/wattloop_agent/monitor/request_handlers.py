"""The verbs of the agent's socket, for one caller: what is asked, whether it may, what comes back."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict

from wattloop.agent import GpuDescription, PowerLimits
from wattloop.node_energy import Range
from wattloop_agent.lines import gpu_names, number
from wattloop_agent.monitor.callers import Caller
from wattloop_agent.monitor.leases import LeaseMonitor, PowerControllerView
from wattloop_agent.monitor.meter import Meter
from wattloop_agent.monitor.policies.limits import Asked, PolicyLimits
from wattloop_agent.monitor.policy_guard import Guard
from wattloop_agent.monitor.power_controller_link import PowerControllerLink
from wattloop_agent.request_error import Reason, RequestError

CLOCKS = {"graphics": Asked.GRAPHICS_CLOCK, "memory": Asked.MEMORY_CLOCK}
NAMES = ("gpus", "energy", "hold_limit", "hold_clocks", "release", "list", "subscribe")


class RequestHandlers:
    """Answers callers.

    Args:
        meter: Reads the GPUs.
        power controller: Changes them.
        lease_monitor: Knows what is held.
        limits: Gives the guard rails of now; it raises `RequestError` where they are not known.
    """

    def __init__(
        self,
        meter: Meter,
        power_controller: PowerControllerLink,
        lease_monitor: LeaseMonitor,
        limits: Callable[[], PolicyLimits] = PolicyLimits,
    ) -> None:
        self._meter = meter
        self._power_controller = power_controller
        self._lease_monitor = lease_monitor
        self._guard = Guard(meter, limits)

    async def answer(self, caller: Caller, request: Mapping[str, object]) -> object:
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
                raise RequestError(Reason.BAD_REQUEST, f"no verb {verb!r:.60}; there are {', '.join(NAMES)}")

    async def readings(self, caller: Caller, request: Mapping[str, object]) -> list[dict[str, object]]:
        """The energy counters of the GPUs asked for, or of all of the caller's.

        Raises:
            RequestError: A GPU is not the caller's, or can't be read.
        """
        if "gpus" in request:
            gpus = gpu_names(request)
            caller.require_seen(gpus)
            readings = await self._meter.energy(gpus)
        elif caller.has_gpus:
            readings = await self._meter.energy_of(caller.sees)
        else:
            readings = []
        return [vars(reading) for reading in readings]

    async def stream(
        self, caller: Callable[[], Awaitable[Caller]], request: Mapping[str, object], interval_seconds: float
    ) -> AsyncGenerator[list[dict[str, object]], None]:
        """The same at an interval, after the first from the sampler's looks: subscribers cost the driver nothing.

        Raises:
            RequestError: As `readings`, or the caller is nobody any more.
        """
        first = await self.readings(await caller(), request)
        gpus = tuple(str(reading["uuid"]) for reading in first)
        yield first
        with self._meter.sampler.watching(gpus, interval_seconds) as watch:
            while True:
                await watch.next()
                who = await caller()
                yield self._sampled(who, gpus) or await self.readings(who, request)

    def _sampled(self, caller: Caller, gpus: tuple[str, ...]) -> list[dict[str, object]]:
        """The readings of the last look; empty where it does not tell all, so that the driver says why."""
        caller.require_seen(gpus)
        counted = self._meter.sampler.counted
        told = [counted[uuid] for uuid in gpus if uuid in counted]
        if len(told) < len(gpus):
            return []
        return [
            {"uuid": each.uuid, "energy_millijoules": each.counter_millijoules, "time_seconds": each.clock_seconds}
            for each in told
        ]

    async def _facts(self, caller: Caller) -> list[GpuDescription]:
        return [facts for facts in await self._meter.gpus() if caller.sees(facts.uuid)]

    async def _gpus(self, caller: Caller) -> list[dict[str, object]]:
        if not caller.has_gpus:
            # Neither the driver nor the power controller is asked on behalf of a caller that may see nothing.
            return []
        facts = await self._facts(caller)
        view = await self._lease_monitor.refresh()
        found = {lease["uuid"]: lease["found"] for lease in view.leases if lease["setting"] == "power_limit"}
        answer = []
        for gpu in facts:
            limits = None
            if gpu.power_limits is not None:
                limits = asdict(gpu.power_limits)
                limits["found_watts"] = found.get(gpu.uuid, limits["current_watts"])
                limits["allowed_watts"] = await self._allowed(caller, gpu.uuid, gpu.power_limits, view)
            answer.append({"uuid": gpu.uuid, "name": gpu.name, "index": gpu.index, "power_limits": limits})
        return answer

    async def _allowed(self, caller: Caller, gpu: str, limits: PowerLimits, view: PowerControllerView) -> Range | None:
        if gpu in caller.shared:
            return None
        least, most = view.bounds.get("power_limit", (None, None))
        accepted = max(limits.minimum_watts, least or 0.0), min(limits.maximum_watts, most or math.inf)
        return await self._guard.allowed(caller, gpu, Asked.POWER_LIMIT, accepted)

    async def _hold_limit(self, caller: Caller, request: Mapping[str, object]) -> list[dict[str, object]]:
        gpus = gpu_names(request)
        caller.require_own(gpus)
        watts = number(request, "watts")
        ends = await self._guard.admit(caller, gpus, Asked.POWER_LIMIT, watts)
        asked = {"verb": "hold_limit", "gpus": gpus, "watts": watts, **ends, **_owned(caller, request)}
        held = await self._power_controller.ask(asked)
        self._lease_monitor.held_for(caller.owner)
        return [
            {
                "uuid": each["uuid"],
                "found_watts": each["found"],
                "held_watts": each["held"],
                "enforced_watts": each["held"] if each["enforced"] is None else each["enforced"],
            }
            for each in held
        ]

    async def _hold_clocks(self, caller: Caller, request: Mapping[str, object]) -> list[dict[str, object]]:
        gpus = gpu_names(request)
        caller.require_own(gpus)
        megahertz, domain = number(request, "megahertz"), request.get("domain", "graphics")
        # What is no domain is for the power controller to refuse.
        clock = CLOCKS.get(domain) if isinstance(domain, str) else None
        ends = {} if clock is None else await self._guard.admit(caller, gpus, clock, megahertz)
        asked = {
            "verb": "hold_clocks",
            "gpus": gpus,
            "megahertz": megahertz,
            "domain": domain,
            **ends,
            **_owned(caller, request),
        }
        held = await self._power_controller.ask(asked)
        self._lease_monitor.held_for(caller.owner)
        return [{"uuid": each["uuid"], "held_megahertz": each["held"]} for each in held]

    async def _release(self, caller: Caller, request: Mapping[str, object]) -> list[str]:
        asked: dict[str, object] = {"verb": "release", "owner": caller.owner}
        if "gpus" in request:
            gpus = gpu_names(request)
            caller.require_seen(gpus)
            asked["gpus"] = gpus
        released = await self._power_controller.ask(asked)
        return list(dict.fromkeys(each["uuid"] for each in released))

    async def _list(self, caller: Caller) -> list[dict[str, object]]:
        if not caller.has_gpus:
            return []
        return [
            {**lease, "yours": lease["owner"] == caller.owner}
            for lease in (await self._lease_monitor.refresh()).leases
            if caller.sees(lease["uuid"])
        ]


def _owned(caller: Caller, request: Mapping[str, object]) -> dict[str, object]:
    owned: dict[str, object] = {"owner": caller.owner}
    if request.get("for_seconds") is not None:
        owned["for_seconds"] = number(request, "for_seconds")
    return owned
