"""The ledger on disk, so that no energy is lost when the monitor dies: the older or the newer file is there, whole.

Written aside, fsync, renamed, fsync of the folder, as the power controller's leases are. Unlike those it may
be seconds old: the
counters themselves remember what was used since.
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

from wattloop_agent.durable import read_bounded, write_durably

FORMAT = 1
NAME = "energy.json"
# A span has under 600 bytes, and an account; attribution.ENDED_LIMIT bounds the spans.
LIMIT_BYTES = 8 * 1024 * 1024
ASIDE_LIMIT = 10


class CorruptLedger(Exception):  # noqa: N818 - a state of the disk
    """The file is not one that we wrote; it was set aside, and the energy of pods that it alone knew is lost."""


class FolderInUse(OSError):  # noqa: N818 - a state of the folder
    """Another monitor keeps its ledger in this folder."""


class LedgerFile:
    """The ledger's file in the monitor's state folder, locked for this process.

    Args:
        folder: The state folder; made where it is missing.

    Raises:
        FolderInUse: Another monitor has it.
        OSError: It can't be used.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        _made(folder)
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            if isinstance(error, BlockingIOError):
                raise FolderInUse(error.errno, "another agent uses this state folder; one agent a node") from error
            raise

    def close(self) -> None:
        """Give up the lock."""
        os.close(self._folder)

    def read(self) -> dict[str, Any] | None:
        """What was written last; None: nothing.

        Raises:
            CorruptLedger: It is damaged; it was moved aside.
            OSError: It can't be read.
        """
        try:
            data = read_bounded(self.path, LIMIT_BYTES)
        except FileNotFoundError:
            return None
        try:
            return _decoded(data)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self.corrupt(str(error)) from error

    def corrupt(self, why: str) -> CorruptLedger:
        """Set the file aside; returns what to say of it."""
        for number in range(ASIDE_LIMIT):
            target = self.path.with_name(f"{NAME}.corrupt-{number}")
            # The last place is used again and again: damaged files must not fill the disk.
            if not target.exists() or number == ASIDE_LIMIT - 1:
                with contextlib.suppress(OSError):
                    self.path.rename(target)
                    return CorruptLedger(f"{self.path}: no ledger of ours ({why}); kept as {target}")
        return CorruptLedger(f"{self.path}: no ledger of ours ({why}), and it could not be moved aside")

    def write(self, record: Mapping[str, Any]) -> None:
        """Make this the ledger on disk; durable when it returns.

        Raises:
            OSError: A full disk, a read-only folder, ….
        """
        write_durably(self.path, self._folder, _encoded(record))


def _made(folder: Path) -> None:
    """Make the folder for us alone; above it too, since it lies in the power controller's."""
    if not folder.is_dir():
        if not folder.parent.is_dir():
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def _encoded(record: Mapping[str, Any]) -> bytes:
    body = json.dumps(record, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{{"format":{FORMAT},"sha256":"{digest}","ledger":{body}}}\n'.encode()


def _decoded(data: bytes) -> dict[str, Any]:
    if len(data) > LIMIT_BYTES:
        raise ValueError(f"more than {LIMIT_BYTES} bytes")
    content = json.loads(data)
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}, this agent reads {FORMAT}")
    ledger: dict[str, Any] = content["ledger"]
    body = json.dumps(ledger, separators=(",", ":"))
    if content["sha256"] != hashlib.sha256(body.encode()).hexdigest():
        raise ValueError("its checksum does not fit its content")
    return ledger
