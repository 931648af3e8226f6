"""The ledger's file. A kill of the monitor leaves the older or the newer file, complete.

Each write goes to a temporary file, which is synced, renamed and synced with its folder, like the
power controller's leases. Unlike those, the file may be seconds old, because the GPUs' counters
continue after a restart.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wattloop_agent.durable_file import read_bounded, write_durably

FORMAT = 1
NAME = "energy.json"
# An interval or an account has less than 600 bytes; attribution.MAX_ENDED bounds the intervals.
MAX_BYTES = 8 * 1024 * 1024
MAX_CORRUPT_FILES = 10


class CorruptLedger(Exception):  # noqa: N818 - a state of the disk
    """The file is not a valid ledger. It was moved aside; its usages are lost."""


class FolderInUse(OSError):  # noqa: N818 - a state of the folder
    """Another monitor has locked the state folder."""


class LedgerFile:
    """The ledger's file in the monitor's state folder, locked for this process.

    Args:
        folder: State folder; created if missing.

    Raises:
        FolderInUse: Another monitor has locked the folder.
        OSError: The folder can't be used.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        _create_folder(folder)
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            if isinstance(error, BlockingIOError):
                raise FolderInUse(error.errno, "another agent uses this state folder; one agent a node") from error
            raise

    def close(self) -> None:
        """Release the lock."""
        os.close(self._folder)

    def read(self) -> dict[str, Any] | None:
        """Return the record that was written last; None if there is none.

        Raises:
            CorruptLedger: The file is damaged and was moved aside.
            OSError: The file can't be read.
        """
        try:
            data = read_bounded(self.path, MAX_BYTES)
        except FileNotFoundError:
            return None
        try:
            return _decoded(data)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self.move_aside(str(error)) from error

    def move_aside(self, reason: str) -> CorruptLedger:
        """Move an invalid file aside; return the error that describes it."""
        for number in range(MAX_CORRUPT_FILES):
            target = self.path.with_name(f"{NAME}.corrupt-{number}")
            # The last name is reused, so that damaged files can't fill the disk.
            if not target.exists() or number == MAX_CORRUPT_FILES - 1:
                with contextlib.suppress(OSError):
                    self.path.rename(target)
                    return CorruptLedger(f"{self.path}: not a valid ledger ({reason}); moved to {target}")
        return CorruptLedger(f"{self.path}: not a valid ledger ({reason}), and it could not be moved aside")

    def write(self, record: Mapping[str, Any]) -> None:
        """Write a record durably.

        Raises:
            OSError: The file can't be written, for example on a full disk or in a read-only folder.
        """
        write_durably(self.path, self._folder, _encoded(record))


def _create_folder(folder: Path) -> None:
    """Create the folder and its parent, the power controller's, with access for this user only."""
    if not folder.is_dir():
        if not folder.parent.is_dir():
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def _encoded(record: Mapping[str, Any]) -> bytes:
    body = json.dumps(record, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{{"format":{FORMAT},"sha256":"{digest}","ledger":{body}}}\n'.encode()


def _decoded(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    content = json.loads(data)
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}; this agent reads format {FORMAT}")
    ledger: dict[str, Any] = content["ledger"]
    body = json.dumps(ledger, separators=(",", ":"))
    if content["sha256"] != hashlib.sha256(body.encode()).hexdigest():
        raise ValueError("its checksum does not match its content")
    return ledger
