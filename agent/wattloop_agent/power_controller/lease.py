"""A lease, a setting of a GPU held for an owner and the value to restore, and the file that stores leases.

`lease_decisions` decides on them, `lease_manager` applies them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wattloop_agent import refusals
from wattloop_agent.durable_file import StateFile
from wattloop_agent.gpu_setting import GpuSetting

logger = logging.getLogger(__name__)

# A later format keeps the meaning of these fields, so that this agent restores after a downgrade too.
FORMAT = 1
NAME = "leases.json"
SETTINGS = frozenset(GpuSetting)
# A lease has under 400 bytes and a node under 100 GPUs with three settings each.
LIMIT_BYTES = 1024 * 1024
LeaseKey = tuple[str, GpuSetting]


@dataclass(frozen=True)
class Lease:
    """One setting of one GPU, held for one owner.

    Attributes:
        gpu: The GPU's uuid.
        setting: Which of its settings.
        found: The value before the first hold, which is restored; None: an unlocked clock, or a
            power limit in the file of another version that does not say it.
        held: The value set for the owner; None while the first change is in progress.
        pending: The value that a change in progress is about to set; None: no change is in
            progress. It identifies an interrupted change.
        owner: The owner, an opaque name from the monitor.
        boot_id: The boot in which it was created. A reboot resets the device, so leases of earlier
            boots need no restoring.
        expires_seconds: When it expires, on CLOCK_BOOTTIME; None: never.
        releasing: It was released, but the device could not be restored yet; restoring is retried.
    """

    gpu: str
    setting: GpuSetting
    found: float | None
    held: float | None
    pending: float | None
    owner: str
    boot_id: str
    expires_seconds: float | None = None
    releasing: bool = False

    @property
    def key(self) -> LeaseKey:
        """Its GPU and setting; there is one lease for each."""
        return (self.gpu, self.setting)

    def changed(self, **fields: object) -> Lease:
        """A copy with other values in these fields.

        Ten times as fast as `dataclasses.replace`: a plan moves the clocks of all GPUs at every instruction.

        Example:
            >>> from dataclasses import replace
            >>> lease = Lease("GPU-1", GpuSetting.GRAPHICS_CLOCK, None, 900.0, None, "process:1@2", "boot")
            >>> lease.changed(pending=915.0) == replace(lease, pending=915.0)
            True
        """
        copy = object.__new__(Lease)
        vars(copy).update(vars(self), **fields)
        return copy


Leases = Mapping[LeaseKey, Lease]


def lease_from_record(record: object) -> Lease:
    """Decode a lease from its fields as JSON data.

    Raises:
        ValueError: The record is no valid lease; the message names the field.

    Example:
        >>> lease = Lease("GPU-1", GpuSetting.POWER_LIMIT, 300.0, 200.0, None, "process:1@2", "boot")
        >>> lease_from_record(asdict(lease)) == lease
        True
    """
    if not isinstance(record, dict):
        raise ValueError(f"a lease is an object, not {type(record).__name__}")  # noqa: TRY004 - bad data, not a bug
    return Lease(
        gpu=_string(record, "gpu"),
        setting=GpuSetting(_string(record, "setting")),
        found=_number(record, "found"),
        held=_number(record, "held"),
        pending=_number(record, "pending"),
        owner=_string(record, "owner"),
        boot_id=_string(record, "boot_id"),
        expires_seconds=_number(record, "expires_seconds"),
        releasing=record.get("releasing") is True,
    )


def _string(record: dict[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r}, not a string")
    return value


def _number(record: dict[str, Any], name: str) -> float | None:
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise ValueError(f"{name} is {value!r}, not a finite number")
    return float(value)


class LeaseFile:
    """The lease file of a state folder, locked for this process; the folder is created if missing.

    Raises:
        RequestError: `Reason.STATE_NOT_DURABLE`: the folder can't be used, or another agent uses it.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = StateFile(folder / NAME, "lease file", LIMIT_BYTES, encoded=_encoded, decoded=_decoded)
        except BlockingIOError as error:
            raise refusals.folder_in_use(folder) from error
        except OSError as error:
            raise refusals.not_stored(folder, error) from error

    def close(self) -> None:
        """Release the lock."""
        self._file.close()

    def read(self) -> list[Lease]:
        """The leases as last written; none if there is no file.

        Raises:
            CorruptFileError: It is damaged; it was moved aside.
            RequestError: `Reason.STATE_NOT_DURABLE`: it can't be read.
        """
        try:
            return self._file.read() or []
        except OSError as error:
            raise refusals.not_stored(self._file.path, error) from error

    def write(self, leases: Iterable[Lease]) -> None:
        """Replace the leases on disk; durable on return.

        Raises:
            RequestError: `Reason.STATE_NOT_DURABLE`: the disk is full, the folder is read-only, ….
        """
        try:
            self._file.write(list(leases))
        except OSError as error:
            raise refusals.not_stored(self._file.path, error) from error


def _encoded(leases: list[Lease]) -> bytes:
    records = [asdict(lease) for lease in leases]
    return json.dumps({"format": FORMAT, "sha256": _digest(records), "leases": records}, indent=1).encode() + b"\n"


def _decoded(data: bytes) -> list[Lease]:
    content = json.loads(data)
    if not isinstance(content["format"], int) or content["format"] < FORMAT:
        raise ValueError(f"format {content['format']!r}, this agent reads {FORMAT} and later")
    if content["sha256"] != _digest(content["leases"]):
        raise ValueError("its checksum does not match its leases")
    return [lease_from_record(record) for record in content["leases"] if _has_known_setting(record)]


def _has_known_setting(record: object) -> bool:
    """Whether this version has the setting of a lease; if not, the log says what to restore by hand."""
    if not isinstance(record, dict) or not isinstance(record.get("setting"), str) or record["setting"] in SETTINGS:
        return True
    extra = {name: record.get(name) for name in ("gpu", "setting", "found", "held")}
    logger.error("lease of another version's setting: restore the value found by hand", extra=extra)
    return False


def _digest(records: object) -> str:
    return hashlib.sha256(json.dumps(records, sort_keys=True).encode()).hexdigest()
