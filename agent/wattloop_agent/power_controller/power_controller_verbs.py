"""Handles the power controller's verbs: hold_limit, hold_clocks, release, list, heartbeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from wattloop_agent.gpu_setting import CLOCKS, AllowedRange, GpuSetting
from wattloop_agent.json_lines import gpus_in_request, number, string
from wattloop_agent.power_controller.lease_decisions import HoldRequest
from wattloop_agent.power_controller.lease_manager import HeldLease, LeaseManager
from wattloop_agent.refusals import Reason, RequestError

NAMES = ("hold_limit", "hold_clocks", "release", "list", "heartbeat")
SETTINGS = {setting.value: setting for setting in GpuSetting}


class PowerControllerVerbs:
    """Answers the monitor's requests; the clock is CLOCK_BOOTTIME, in seconds."""

    def __init__(self, lease_manager: LeaseManager, clock: Callable[[], float]) -> None:
        self._lease_manager = lease_manager
        self._clock = clock

    def answer(self, request: Mapping[str, object]) -> object:
        """The result of one request; `RequestError` has the reason of a refusal."""
        match request["verb"]:
            case "hold_limit":
                return self._hold(request, GpuSetting.POWER_LIMIT, number(request, "watts"))
            case "hold_clocks":
                return self._hold(request, _clock_setting(request), number(request, "megahertz"))
            case "release":
                owner = string(request, "owner") if "owner" in request else None
                gpus = gpus_in_request(request) if "gpus" in request else None
                released = self._lease_manager.release(owner, gpus, _released_setting(request))
                return [{"uuid": gpu, "setting": setting} for gpu, setting in released]
            case "list" | "heartbeat":
                return self._list()
            case verb:
                raise RequestError(Reason.BAD_REQUEST, f"unknown verb {verb!r:.60}; there are {', '.join(NAMES)}")

    def _hold(self, request: Mapping[str, object], setting: GpuSetting, value: float) -> list[dict[str, object]]:
        expires = None
        if request.get("for_seconds") is not None:
            seconds = number(request, "for_seconds")
            if seconds <= 0:
                raise RequestError(Reason.BAD_REQUEST, f'found "for_seconds" {seconds:g}, expected a positive number')
            expires = self._clock() + seconds
        hold = HoldRequest(
            gpus_in_request(request), setting, value, string(request, "owner"), expires, _within(request)
        )
        return [_record(held) for held in self._lease_manager.hold(hold)]

    def _list(self) -> dict[str, object]:
        return {
            "state": self._lease_manager.state,
            "warning": self._lease_manager.warning,
            "bounds": {setting: _bounds(bounds) for setting, bounds in self._lease_manager.bounds.items()},
            "leases": [
                {
                    "uuid": lease.gpu,
                    "setting": lease.setting,
                    "found": lease.found,
                    "held": lease.held,
                    "owner": lease.owner,
                    "releasing": lease.releasing,
                }
                for lease in self._lease_manager.leases.values()
            ],
        }


def _clock_setting(request: Mapping[str, object]) -> GpuSetting:
    domain = request.get("domain", "graphics")
    if not isinstance(domain, str) or domain not in CLOCKS:
        raise RequestError(Reason.BAD_REQUEST, f'found "domain" {domain!r:.60}, expected "graphics" or "memory"')
    return CLOCKS[domain]


def _released_setting(request: Mapping[str, object]) -> GpuSetting | None:
    if request.get("setting") is None:
        return None
    name = string(request, "setting")
    if name not in SETTINGS:
        expected = ", ".join(SETTINGS)
        raise RequestError(Reason.BAD_REQUEST, f'found "setting" {name!r:.60}, expected one of {expected}')
    return SETTINGS[name]


def _within(request: Mapping[str, object]) -> AllowedRange | None:
    minimum, maximum = (None if request.get(name) is None else number(request, name) for name in ("minimum", "maximum"))
    if minimum is None and maximum is None:
        return None
    return AllowedRange(-math.inf if minimum is None else minimum, math.inf if maximum is None else maximum)


def _bounds(bounds: AllowedRange) -> list[float | None]:
    """The minimum and the maximum; None: the device's own."""
    return [bound if math.isfinite(bound) else None for bound in (bounds.minimum, bounds.maximum)]


def _record(held: HeldLease) -> dict[str, object]:
    lease = held.lease
    return {"uuid": lease.gpu, "found": lease.found, "held": lease.held, "enforced": held.enforced}
