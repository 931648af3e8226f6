"""Removes everything that a node has left on the machine, in an order in which nothing comes back.

It needs none of the node's own parts: a killed run is cleaned up after in the same way as one that ended in order.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from support.kubernetes_node.address_translation import remove_chains
from support.kubernetes_node.folders import NodeFolders
from support.kubernetes_node.network import remove_network, restore_kernel_settings
from support.kubernetes_node.record import Record
from support.kubernetes_node.requirements import cgroup_roots

PODS_CGROUP = "kubepods"
_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.05


class NotCleanError(Exception):
    """Something of a node could not be removed."""


def clean_up(record: Record) -> None:
    """Undoes what the record says, and what follows from it.

    Raises:
        NotCleanError: A process or a mount would not go.
    """
    folders = NodeFolders(record.folder)
    _end_processes(lambda: _servers(folders), "the node's servers")
    _end_processes(lambda: _shims(folders), "containerd's shims")
    _end_processes(_processes_of_pods, "processes of pods")
    remove_network()
    remove_chains()
    _unmount(record.folder)
    _remove_cgroups()
    restore_kernel_settings(record.kernel_settings)
    for each in (record.folder, *record.made):
        if each.exists():
            shutil.rmtree(each)
    Record.remove()


def pods_run_here() -> bool:
    """Whether there are cgroups of pods: a kubelet runs or has run on this machine."""
    return any((root / PODS_CGROUP).exists() for root in cgroup_roots())


def _end_processes(find: Callable[[], set[int]], what: str) -> None:
    """Kills until no process is left, because a process may start another while it is killed."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while found := find():
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise NotCleanError(f"{what} do not end: {sorted(found)}")
        time.sleep(_POLL_SECONDS)


def _servers(folders: NodeFolders) -> set[int]:
    """Processes with the node's folder among their arguments, as its servers have; not this one, nor who started it."""
    spared = {os.getpid(), os.getppid()}
    folder = f"{folders.folder}/"
    return {
        process
        for process, arguments in _command_lines()
        if process not in spared and any(folder in each for each in arguments) and "-shim-" not in arguments[0]
    }


def _shims(folders: NodeFolders) -> set[int]:
    address = str(folders.containerd_address)
    return {process for process, arguments in _command_lines() if "-shim-" in arguments[0] and address in arguments}


def _processes_of_pods() -> set[int]:
    found: set[int] = set()
    for root in cgroup_roots():
        # A cgroup may be removed while it is looked at: its folder is gone, or its file has no device.
        for folder, _, _ in os.walk(root / PODS_CGROUP):
            with contextlib.suppress(OSError):
                listing = Path(folder) / "cgroup.procs"
                found.update(int(line) for line in listing.read_text(encoding="ascii").split())
    return found


def _command_lines() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                arguments = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                # A process that has ended and was not waited for has no arguments.
                if arguments[0]:
                    yield int(folder.name), arguments


def _unmount(folder: Path) -> None:
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    for place in reversed(mounted):
        # The kernel writes a space as \040.
        path = place.encode().decode("unicode_escape")
        if Path(path).is_relative_to(folder):
            answer = subprocess.run(["umount", "--lazy", path], check=False, capture_output=True, text=True)
            if answer.returncode != 0 and Path(path).is_mount():
                raise NotCleanError(answer.stderr.strip())


def _remove_cgroups() -> None:
    """Removes the pods' cgroups, the innermost first; an ended process leaves its own a moment later."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    for root in cgroup_roots():
        while (root / PODS_CGROUP).exists():
            folders = [Path(name) for name, _, _ in os.walk(root / PODS_CGROUP, topdown=False)]
            for folder in folders:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            if time.monotonic() > deadline:
                raise NotCleanError(f"{root / PODS_CGROUP} is not empty")
            if (root / PODS_CGROUP).exists():
                time.sleep(_POLL_SECONDS)
