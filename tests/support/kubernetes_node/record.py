"""The one node of this machine: who holds it, and what has to be cleaned up after it.

A name that the kernel gives to one process at a time, and takes back when it dies, lets one node run at a time. A
record on disk tells the next one, or `make cluster-down`, what a killed one has left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.kubernetes_node.folders import DEVICE_PLUGINS

# An abstract unix socket: a lock that leaves no file.
_LOCK = "\0wattloop-test-node"
_LOOKS_EVERY_SECONDS = 0.5
_RECORD = Path("/run/wattloop-test-node.json")
# Created by containerd, its shims, the kubelet, CNI and the agent's pods, independent of their roots.
_FIXED_FOLDERS = (
    DEVICE_PLUGINS.parent,
    Path("/run/containerd"),
    Path("/var/lib/cni"),
    Path("/var/log/containers"),
    Path("/run/wattloop-gpus"),
)


class NodeAlreadyRunsError(Exception):
    """Another node runs on this machine, of the tests or a real one."""


@dataclass(frozen=True)
class Record:
    """The changes of a node to the machine.

    Attributes:
        supervisor: The process that holds it together.
        kernel_settings: Settings of the kernel as they were.
        made: Folders at fixed places that were not there before.
    """

    folder: Path
    supervisor: int
    kernel_settings: dict[str, str]
    made: tuple[Path, ...] = dataclasses.field(
        default_factory=lambda: tuple(each for each in _FIXED_FOLDERS if not each.exists())
    )

    def write(self) -> None:
        """Stores it, so that it outlives its author."""
        content = {
            "folder": str(self.folder),
            "supervisor": self.supervisor,
            "kernel_settings": self.kernel_settings,
            "made": [str(each) for each in self.made],
        }
        unfinished = _RECORD.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(content), encoding="utf-8")
        unfinished.replace(_RECORD)

    @staticmethod
    def read() -> Record | None:
        """The record of a node that runs or has left something; None where there is none."""
        try:
            content = json.loads(_RECORD.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        made = tuple(Path(each) for each in content["made"])
        return Record(Path(content["folder"]), content["supervisor"], content["kernel_settings"], made)

    @staticmethod
    def remove() -> None:
        """Forgets it: nothing is left to clean up."""
        _RECORD.unlink(missing_ok=True)


@contextlib.contextmanager
def locked_machine(*, wait_seconds: float = 0.0) -> Iterator[None]:
    """Holds the lock.

    Args:
        wait_seconds: How long to wait for another process to give it back.
    """
    deadline = time.monotonic() + wait_seconds
    with socket.socket(socket.AF_UNIX) as lock:
        while not _bound(lock):
            if time.monotonic() >= deadline:
                record = Record.read()
                who = f"process {record.supervisor}, {record.folder}" if record else "it is just starting or ending"
                raise NodeAlreadyRunsError(
                    f"a node of the tests runs on this machine ({who}); make cluster-down ends it"
                )
            time.sleep(_LOOKS_EVERY_SECONDS)
        yield


def _bound(lock: socket.socket) -> bool:
    try:
        lock.bind(_LOCK)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def machine_is_locked() -> bool:
    """Whether a node runs on this machine now, or is starting or ending."""
    try:
        with locked_machine():
            return False
    except NodeAlreadyRunsError:
        return True
