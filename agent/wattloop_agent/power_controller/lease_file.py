"""Stores leases on disk, atomically and durably.

A process that is killed at any instruction leaves the old or the new file intact. When
`LeaseFile.write` returns, the leases survive a power cut too.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable
from pathlib import Path

from wattloop_agent import refusals
from wattloop_agent.durable_file import StateFile
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.power_controller.lease import Lease, lease_from_record, lease_to_record

# A later format keeps the meaning of these fields, so that this agent restores after a downgrade too.
FORMAT = 1
NAME = "leases.json"
SETTINGS = frozenset(GpuSetting)
# A lease has under 400 bytes and a node under 100 GPUs with three settings each.
LIMIT_BYTES = 1024 * 1024


logger = logging.getLogger(__name__)


class LeaseFile:
    """The lease file of a state folder, locked for this process.

    Args:
        folder: The state folder; created if missing.

    Raises:
        RequestError: `Reason.STATE_NOT_DURABLE`: the folder can't be used, or another agent uses
            it.
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
    records = [lease_to_record(lease) for lease in leases]
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
