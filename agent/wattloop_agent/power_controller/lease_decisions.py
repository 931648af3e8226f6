"""Decides on leases, as pure functions: no device, no disk, no clock.

A change has two steps, so that it can be undone wherever it is interrupted: `begin_hold` gives the
leases to store before any device is set, `finish_hold` those to store after all are set.
`restoration` decides how to restore a device, given its current value.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wattloop_agent import refusals
from wattloop_agent.gpu_setting import AllowedRange, GpuSetting
from wattloop_agent.power_controller.lease import Lease, LeaseKey, Leases
from wattloop_agent.refusals import RequestError

# NVML uses integer milliwatts; two readings of one limit can't differ by more.
TOLERANCE_WATTS = 0.002


@dataclass(frozen=True)
class HoldRequest:
    """A request to hold one setting of some GPUs at a value, for an owner.

    Attributes:
        gpus: Uuids, none of them twice.
        setting: The setting.
        value: Watts or megahertz.
        owner: The owner of the leases.
        expires_seconds: When the leases expire, on CLOCK_BOOTTIME; None: never.
        within: The range that the node's policies allow; it only narrows the other ranges.
    """

    gpus: tuple[str, ...]
    setting: GpuSetting
    value: float
    owner: str
    expires_seconds: float | None = None
    within: AllowedRange | None = None


def refuse_held_by_others(leases: Leases, request: HoldRequest) -> None:
    """Refuse GPUs of which another owner holds any setting, by `Reason.NOT_YOURS`."""
    wanted = set(request.gpus)
    for lease in leases.values():
        if lease.gpu in wanted and lease.owner != request.owner:
            raise refusals.held_by_another(lease.gpu, lease.setting, lease.owner)


def values_to_set(
    request: HoldRequest, allowed: Mapping[str, AllowedRange], bounds: AllowedRange | None
) -> dict[str, float]:
    """The value to set on each GPU of a request.

    It is the requested value; for clocks, the nearest allowed step. Ranges are those of the devices and of the
    administrator.

    Raises:
        RequestError: `Reason.OUT_OF_RANGE`, with all ranges.
    """
    values = {}
    for gpu in request.gpus:
        device = allowed[gpu]
        common = device.narrowed(bounds).narrowed(request.within)
        if not common.minimum <= request.value <= common.maximum:
            raise _out_of_range(gpu, request, device, bounds, "is out of range")
        if device.steps and not common.steps:
            raise _out_of_range(gpu, request, device, bounds, "has no step of the device within all ranges")
        values[gpu] = common.nearest(request.value)
    return values


def _out_of_range(
    gpu: str, request: HoldRequest, device: AllowedRange, bounds: AllowedRange | None, how: str
) -> RequestError:
    ranges = [f"the device accepts {device.minimum:g} to {device.maximum:g} {request.setting.unit}"]
    for label, bound in (("the administrator allows", bounds), ("the policies of this node allow", request.within)):
        if bound is not None:
            ranges.append(f"{label} {bound.minimum:g} to {bound.maximum:g}")
    if len(ranges) == 1:
        ranges.append("no other bounds")
    return refusals.out_of_range(gpu, request.setting, request.value, ranges, how)


def begin_hold(
    leases: Leases, request: HoldRequest, values: Mapping[str, float], found: Mapping[str, float | None], boot_id: str
) -> dict[LeaseKey, Lease]:
    """All leases to store before the first device of a request is set; those of the request have a pending value.

    Args:
        leases: The current leases.
        request: A request that `refuse_held_by_others` and `values_to_set` admit.
        values: By GPU, the value to set.
        found: The current value, for each GPU that has no lease yet.
        boot_id: The current boot.
    """
    begun = dict(leases)
    for gpu in request.gpus:
        key = (gpu, request.setting)
        before = leases.get(key)
        if before is None:
            before = Lease(gpu, request.setting, found[gpu], None, None, request.owner, boot_id)
        begun[key] = replace(before, pending=values[gpu])
    return begun


def finish_hold(leases: Leases, keys: Iterable[LeaseKey], expires_seconds: float | None) -> dict[LeaseKey, Lease]:
    """The leases to store after every device of a request was set: their pending values are held.

    The expiry changes only now, so that a failed change leaves that of the previous lease as it was.
    """
    finished = dict(leases)
    for key in keys:
        lease = finished[key]
        # A lease that is releasing stays so until here: if the change is undone, the device must still be restored.
        finished[key] = lease.changed(
            held=lease.pending, pending=None, expires_seconds=expires_seconds, releasing=False
        )
    return finished


def leases_to_release(
    leases: Leases, owner: str | None, gpus: Sequence[str] | None, setting: GpuSetting | None = None
) -> list[Lease]:
    """The leases of this owner (None: of all) on these GPUs (None: on all) of this setting (None: of all).

    Raises:
        RequestError: `Reason.NOT_YOURS`: another owner holds one of the GPUs.
    """
    if owner is not None and gpus is not None:
        for lease in leases.values():
            if lease.gpu in gpus and lease.owner != owner:
                raise refusals.held_by_another(lease.gpu, lease.setting, lease.owner)
    return [
        lease
        for lease in leases.values()
        if (owner is None or lease.owner == owner)
        and (gpus is None or lease.gpu in gpus)
        and (setting is None or lease.setting is setting)
    ]


def expired(leases: Leases, now_seconds: float) -> list[Lease]:
    """The expired leases (``now_seconds`` on CLOCK_BOOTTIME)."""
    return [
        each for each in leases.values() if each.expires_seconds is not None and each.expires_seconds <= now_seconds
    ]


def of_this_boot(leases: Iterable[Lease], boot_id: str) -> dict[LeaseKey, Lease]:
    """The leases of the current boot; a reboot has reset the devices of the others."""
    return {lease.key: lease for lease in leases if lease.boot_id == boot_id}


def clocks_pending(leases: Leases) -> dict[LeaseKey, Lease]:
    """The same leases, with held clocks marked as pending, so that they are set again."""
    return {
        key: replace(lease, pending=lease.pending or lease.held)
        if lease.setting is not GpuSetting.POWER_LIMIT
        else lease
        for key, lease in leases.items()
    }


class Restoration(enum.Enum):
    """How to restore a device when its lease ends."""

    SET_FOUND = "set the value found before the hold, or the default if that is unknown"
    NOTHING = "the device already has that value"
    LEAVE = "another actor has set another value, which is left"


def restoration(lease: Lease, current: float | None) -> Restoration:
    """How to restore the device of a lease, given its current value.

    NVML does not report a clock lock, so clocks are always set. A power limit that is neither the
    found value nor one that the agent set is another actor's: it is reported, and not changed.

    Example:
        >>> lease = Lease("GPU-1", GpuSetting.POWER_LIMIT, 300.0, 200.0, None, "process:1@2", "boot")
        >>> [restoration(lease, watts).name for watts in (200.0, 300.0, 250.0)]
        ['SET_FOUND', 'NOTHING', 'LEAVE']
    """
    if lease.setting is not GpuSetting.POWER_LIMIT or current is None:
        return Restoration.SET_FOUND
    if lease.found is not None and abs(current - lease.found) <= TOLERANCE_WATTS:
        return Restoration.NOTHING
    own = [value for value in (lease.held, lease.pending) if value is not None]
    return Restoration.SET_FOUND if any(abs(current - value) <= TOLERANCE_WATTS for value in own) else Restoration.LEAVE
