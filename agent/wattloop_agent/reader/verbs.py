"""The verbs of the agent's socket, for one caller: what is asked, whether it may, what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wattloop_agent.lines import gpu_names, number
from wattloop_agent.reader.callers import Caller
from wattloop_agent.reader.leases import LeaseKeeper
from wattloop_agent.reader.meter import Meter
from wattloop_agent.reader.setter_link import SetterLink
from wattloop_agent.refusal import Reason, Refused

NAMES = ("gpus", "energy", "hold_limit", "hold_clocks", "release", "list", "subscribe")


class Verbs:
    """Answers callers.

    Args:
        meter: Reads the GPUs.
        setter: Changes them.
        keeper: Knows what is held.
    """

    def __init__(self, meter: Meter, setter: SetterLink, keeper: LeaseKeeper) -> None:
        self._meter = meter
        self._setter = setter
        self._keeper = keeper

    async def answer(self, caller: Caller, request: Mapping[str, object]) -> object:
        """The result of one request (other than ``subscribe``, which has many).

        Raises:
            Refused: With the reason.
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
                raise Refused(Reason.BAD_REQUEST, f"no verb {verb!r:.60}; there are {', '.join(NAMES)}")

    async def readings(self, caller: Caller, request: Mapping[str, object]) -> list[dict[str, object]]:
        """The energy counters of the GPUs asked for, or of all of the caller's.

        Raises:
            Refused: A GPU is not the caller's, or can't be read.
        """
        if "gpus" in request:
            gpus = gpu_names(request)
            caller.require_seen(gpus)
            readings = await self._meter.energy(gpus)
        else:
            readings = await self._meter.energy_of(caller.sees)
        return [vars(reading) for reading in readings]

    async def _facts(self, caller: Caller) -> list[Any]:
        return [facts for facts in await self._meter.gpus() if caller.sees(facts.uuid)]

    async def _gpus(self, caller: Caller) -> list[dict[str, object]]:
        facts = await self._facts(caller)
        found = {lease["uuid"]: lease["found"] for lease in await self._leases() if lease["setting"] == "power_limit"}
        answer = []
        for gpu in facts:
            limits = None if gpu.power_limits is None else asdict(gpu.power_limits)
            if limits is not None:
                limits["found_watts"] = found.get(gpu.uuid, limits["current_watts"])
            answer.append({"uuid": gpu.uuid, "name": gpu.name, "index": gpu.index, "power_limits": limits})
        return answer

    async def _leases(self) -> list[dict[str, Any]]:
        return (await self._keeper.refresh()).leases

    async def _hold_limit(self, caller: Caller, request: Mapping[str, object]) -> list[dict[str, object]]:
        gpus = gpu_names(request)
        caller.require_own(gpus)
        asked = {"verb": "hold_limit", "gpus": gpus, "watts": number(request, "watts"), **_owned(caller, request)}
        held = await self._setter.ask(asked)
        self._keeper.look_now()
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
        asked = {
            "verb": "hold_clocks",
            "gpus": gpus,
            "megahertz": number(request, "megahertz"),
            "domain": request.get("domain", "graphics"),
            **_owned(caller, request),
        }
        held = await self._setter.ask(asked)
        self._keeper.look_now()
        return [{"uuid": each["uuid"], "held_megahertz": each["held"]} for each in held]

    async def _release(self, caller: Caller, request: Mapping[str, object]) -> list[str]:
        asked: dict[str, object] = {"verb": "release", "owner": caller.owner}
        if "gpus" in request:
            gpus = gpu_names(request)
            caller.require_seen(gpus)
            asked["gpus"] = gpus
        released = await self._setter.ask(asked)
        return list(dict.fromkeys(each["uuid"] for each in released))

    async def _list(self, caller: Caller) -> list[dict[str, object]]:
        return [
            {**lease, "yours": lease["owner"] == caller.owner}
            for lease in await self._leases()
            if caller.sees(lease["uuid"])
        ]


def _owned(caller: Caller, request: Mapping[str, object]) -> dict[str, object]:
    owned: dict[str, object] = {"owner": caller.owner}
    if request.get("for_seconds") is not None:
        owned["for_seconds"] = number(request, "for_seconds")
    return owned
