"""A lease: a setting of a GPU that is held for an owner, and what the GPU goes back to.

Leases are data: `decisions` decides on them, `lease_file` keeps them on disk, `lease_manager`
applies them.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


class Setting(enum.StrEnum):
    """What of a GPU can be held. Power limits are in watts, clocks in megahertz."""

    POWER_LIMIT = "power_limit"
    GRAPHICS_CLOCK = "graphics_clock"
    MEMORY_CLOCK = "memory_clock"

    @property
    def words(self) -> str:
        """Its name in a sentence."""
        return self.value.replace("_", " ")


UNITS = {Setting.POWER_LIMIT: "watts", Setting.GRAPHICS_CLOCK: "megahertz", Setting.MEMORY_CLOCK: "megahertz"}

Key = tuple[str, Setting]


@dataclass(frozen=True)
class Lease:
    """One setting of one GPU, held for one owner.

    Attributes:
        gpu: The GPU's uuid.
        setting: Which of its settings.
        found: What was set before the first hold, and what it goes back to; None: a clock that was
            not locked.
        held: What is set for the owner; None while the first change is under way.
        pending: What a change under way is about to set; None when none is. A change that was cut
            off is known by it.
        owner: Whose it is: an opaque name that the monitor gave.
        boot_id: The boot in which it was made; another boot has reset the device, so there is
            nothing to restore.
        expires_seconds: On CLOCK_BOOTTIME, when it ends by itself; None: never.
        releasing: It was given up, but the device could not be restored yet; it is tried again
            until it can.
    """

    gpu: str
    setting: Setting
    found: float | None
    held: float | None
    pending: float | None
    owner: str
    boot_id: str
    expires_seconds: float | None = None
    releasing: bool = False

    @property
    def key(self) -> Key:
        """What there can be one lease of."""
        return (self.gpu, self.setting)

    def changed(self, **fields: object) -> Lease:
        """This lease with other values in these fields.

        As `dataclasses.replace`, in a tenth of its time: a plan moves the clocks of all GPUs at
        every instruction.

        Example:
            >>> from dataclasses import replace
            >>> lease = Lease("GPU-1", Setting.GRAPHICS_CLOCK, None, 900.0, None, "process:1@2", "boot")
            >>> lease.changed(pending=915.0) == replace(lease, pending=915.0)
            True
        """
        copy = object.__new__(Lease)
        vars(copy).update(vars(self), **fields)
        return copy


Leases = Mapping[Key, Lease]


def lease_to_record(lease: Lease) -> dict[str, object]:
    """The JSON form of a lease."""
    return asdict(lease)


def lease_from_record(record: object) -> Lease:
    """The lease of a JSON form.

    Raises:
        ValueError: The record is none of ours; the text says which field.

    Example:
        >>> lease = Lease("GPU-1", Setting.POWER_LIMIT, 300.0, 200.0, None, "process:1@2", "boot")
        >>> lease_from_record(lease_to_record(lease)) == lease
        True
    """
    if not isinstance(record, dict):
        raise ValueError(f"a lease is an object, not {type(record).__name__}")  # noqa: TRY004 - bad data, not a bug
    return Lease(
        gpu=_text(record, "gpu"),
        setting=Setting(_text(record, "setting")),
        found=_number(record, "found"),
        held=_number(record, "held"),
        pending=_number(record, "pending"),
        owner=_text(record, "owner"),
        boot_id=_text(record, "boot_id"),
        expires_seconds=_number(record, "expires_seconds"),
        releasing=record.get("releasing") is True,
    )


def _text(record: dict[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r}, not a text")
    return value


def _number(record: dict[str, Any], name: str) -> float | None:
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise ValueError(f"{name} is {value!r}, not a finite number")
    return float(value)
