"""What may become of leases, as pure functions: no device, no disk, no clock.

A change is two steps, so that one that is cut off anywhere can be undone: `begin_hold` gives the
leases to write down before any device is touched, `finish_hold` those to write down after all were.
`restoration` says what has to be set to give a lease back, seen what is set now.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wattloop_agent.power_controller.lease import UNITS, Key, Lease, Leases, Setting
from wattloop_agent.request_error import Reason, RequestError

# NVML holds whole milliwatts; two readings of one limit can't differ by more.
TOLERANCE_WATTS = 0.002


@dataclass(frozen=True)
class HoldRequest:
    """Hold one setting of all of these GPUs at a value, for an owner.

    Attributes:
        gpus: Uuids, none twice.
        setting: Which setting.
        value: Watts or megahertz.
        owner: For whom.
        expires_seconds: On CLOCK_BOOTTIME, when it ends by itself; None: never.
        within: What the monitor lets its caller ask for: it narrows the other ranges and never
            widens them.
    """

    gpus: tuple[str, ...]
    setting: Setting
    value: float
    owner: str
    expires_seconds: float | None = None
    within: AllowedRange | None = None


@dataclass(frozen=True)
class AllowedRange:
    """What a device accepts for a setting: a range, and for clocks the steps in it (ascending; empty: any value)."""

    minimum: float
    maximum: float
    steps: tuple[float, ...] = ()

    def narrowed(self, other: AllowedRange | None) -> AllowedRange:
        """What both accept, with the steps of this one."""
        if other is None:
            return self
        minimum, maximum = max(self.minimum, other.minimum), min(self.maximum, other.maximum)
        return AllowedRange(
            minimum, maximum, self.steps[bisect_left(self.steps, minimum) : bisect_right(self.steps, maximum)]
        )

    def nearest(self, value: float) -> float:
        """The value itself, or where there are steps the nearest of them (the lower of two as near).

        Example:
            >>> clocks = AllowedRange(210.0, 240.0, (210.0, 225.0, 240.0))
            >>> [clocks.nearest(value) for value in (0.0, 217.5, 218.0, 225.0, 999.0)]
            [210.0, 210.0, 225.0, 225.0, 240.0]
        """
        if not self.steps:
            return value
        above = bisect_left(self.steps, value)
        return min(self.steps[max(above - 1, 0) : above + 1], key=lambda step: (abs(step - value), step))


def refuse_held_by_others(leases: Leases, request: HoldRequest) -> None:
    """Refuse a GPU of which another owner holds any setting.

    Raises:
        RequestError: `Reason.NOT_YOURS`.
    """
    wanted = set(request.gpus)
    for lease in leases.values():
        if lease.gpu in wanted and lease.owner != request.owner:
            raise RequestError(
                Reason.NOT_YOURS,
                f"GPU {lease.gpu}: {lease.owner} holds its {lease.setting.words} until it releases it or is gone",
            )


def values_to_set(
    request: HoldRequest, allowed: Mapping[str, AllowedRange], bounds: AllowedRange | None
) -> dict[str, float]:
    """What is to be set on each GPU of a request: the value asked for, for clocks the nearest step within all ranges.

    Args:
        request: What is asked for.
        allowed: By GPU, what the device accepts.
        bounds: What the administrator allows, on top; None: no bounds.

    Raises:
        RequestError: `Reason.OUT_OF_RANGE`, naming both ranges.
    """
    values = {}
    for gpu in request.gpus:
        device = allowed[gpu]
        both = device.narrowed(bounds).narrowed(request.within)
        if not both.minimum <= request.value <= both.maximum:
            raise _out_of_range(gpu, request, device, bounds, "is out of range")
        if device.steps and not both.steps:
            raise _out_of_range(gpu, request, device, bounds, "has no step of the device near it that is in range")
        values[gpu] = both.nearest(request.value)
    return values


def _out_of_range(
    gpu: str, request: HoldRequest, device: AllowedRange, bounds: AllowedRange | None, how: str
) -> RequestError:
    unit = UNITS[request.setting]
    told = [f"the device accepts {device.minimum:g} to {device.maximum:g} {unit}"]
    for who, its in (("the administrator allows", bounds), ("the policies of this node allow", request.within)):
        if its is not None:
            told.append(f"{who} {its.minimum:g} to {its.maximum:g}")
    if len(told) == 1:
        told.append("no other bounds")
    return RequestError(
        Reason.OUT_OF_RANGE,
        f"GPU {gpu}: a {request.setting.words} of {request.value:g} {unit} {how}: {', '.join(told)}",
    )


def begin_hold(
    leases: Leases, request: HoldRequest, values: Mapping[str, float], found: Mapping[str, float | None], boot_id: str
) -> dict[Key, Lease]:
    """The leases to write down before the first device of a request is touched.

    Args:
        leases: Those of now.
        request: Not refused by `refuse_held_by_others` or `values_to_set`.
        values: By GPU, what will be set.
        found: By GPU, what is set now; it matters where there is no lease yet.
        boot_id: Of now.

    Returns:
        All leases, those of the request with their value pending.
    """
    begun = dict(leases)
    for gpu in request.gpus:
        key = (gpu, request.setting)
        before = leases.get(key)
        if before is None:
            before = Lease(gpu, request.setting, found[gpu], None, None, request.owner, boot_id)
        begun[key] = replace(before, pending=values[gpu])
    return begun


def finish_hold(leases: Leases, keys: Iterable[Key], expires_seconds: float | None) -> dict[Key, Lease]:
    """The leases to write down after every device of a request was set: what was pending is held, for so long.

    Not before, so that a change that fails leaves the lease that was there its time too.
    """
    finished = dict(leases)
    for key in keys:
        lease = finished[key]
        # One that was given up and not restored yet stays so until here: undone, it is still to be
        # restored.
        finished[key] = lease.changed(
            held=lease.pending, pending=None, expires_seconds=expires_seconds, releasing=False
        )
    return finished


def leases_to_release(leases: Leases, owner: str | None, gpus: Sequence[str] | None) -> list[Lease]:
    """The leases to give back: of this owner (None: of all), on these GPUs (None: on all).

    Raises:
        RequestError: `Reason.NOT_YOURS`: one of the GPUs named is held, but for another owner.
    """
    if owner is not None and gpus is not None:
        for lease in leases.values():
            if lease.gpu in gpus and lease.owner != owner:
                raise RequestError(
                    Reason.NOT_YOURS, f"GPU {lease.gpu}: its {lease.setting.words} is held for {lease.owner}"
                )
    return [
        lease
        for lease in leases.values()
        if (owner is None or lease.owner == owner) and (gpus is None or lease.gpu in gpus)
    ]


def expired(leases: Leases, now_seconds: float) -> list[Lease]:
    """The leases whose time is over (``now_seconds`` on CLOCK_BOOTTIME)."""
    return [
        each for each in leases.values() if each.expires_seconds is not None and each.expires_seconds <= now_seconds
    ]


def of_this_boot(leases: Iterable[Lease], boot_id: str) -> dict[Key, Lease]:
    """The leases that still mean something: a reboot has reset the devices of the others."""
    return {lease.key: lease for lease in leases if lease.boot_id == boot_id}


def clocks_pending(leases: Leases) -> dict[Key, Lease]:
    """The same leases, with clocks that are held yet to be set."""
    return {
        key: replace(lease, pending=lease.pending or lease.held) if lease.setting is not Setting.POWER_LIMIT else lease
        for key, lease in leases.items()
    }


class Restoration(enum.Enum):
    """What giving a lease back asks of the device."""

    SET_FOUND = "set what was found"
    NOTHING = "it is already as found"
    LEAVE = "another actor has set it to something of its own, which is left"


def restoration(lease: Lease, current: float | None) -> Restoration:
    """What has to be done to give a lease back, seen what is set now.

    Clocks can be locked and unlocked but their lock can't be read, so they are always set. A power
    limit that is neither what was found nor anything that we set is another actor's: it is reported
    and left, not fought.

    Example:
        >>> lease = Lease("GPU-1", Setting.POWER_LIMIT, 300.0, 200.0, None, "process:1@2", "boot")
        >>> [restoration(lease, watts).name for watts in (200.0, 300.0, 250.0)]
        ['SET_FOUND', 'NOTHING', 'LEAVE']
    """
    if lease.setting is not Setting.POWER_LIMIT or current is None or lease.found is None:
        return Restoration.SET_FOUND
    if abs(current - lease.found) <= TOLERANCE_WATTS:
        return Restoration.NOTHING
    ours = [value for value in (lease.held, lease.pending) if value is not None]
    return (
        Restoration.SET_FOUND if any(abs(current - value) <= TOLERANCE_WATTS for value in ours) else Restoration.LEAVE
    )
