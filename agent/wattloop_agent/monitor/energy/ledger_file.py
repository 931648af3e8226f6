"""The ledger's file. A kill of the monitor leaves the older or the newer file, complete.

Each write goes to a temporary file, which is synced, renamed and synced with its folder, like the
power controller's leases. Unlike those, the file may be seconds old, because the GPUs' counters
continue after a restart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wattloop_agent.durable_file import StateFile

FORMAT = 1
NAME = "energy.json"
# An interval or an account has less than 600 bytes; attribution.MAX_ENDED bounds the intervals.
MAX_BYTES = 8 * 1024 * 1024


LedgerFile = StateFile[dict[str, Any]]


def opened_ledger_file(folder: Path) -> LedgerFile:
    """The ledger's file in the monitor's state folder, which is created if missing.

    Raises:
        BlockingIOError: Another monitor has locked the folder.
        OSError: The folder can't be used.
    """
    _create_folder(folder)
    return StateFile(folder / NAME, "ledger", MAX_BYTES, encoded=_encoded, decoded=_decoded)


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
    content = json.loads(data)
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}; this agent reads format {FORMAT}")
    ledger: dict[str, Any] = content["ledger"]
    body = json.dumps(ledger, separators=(",", ":"))
    if content["sha256"] != hashlib.sha256(body.encode()).hexdigest():
        raise ValueError("its checksum does not match its content")
    return ledger
