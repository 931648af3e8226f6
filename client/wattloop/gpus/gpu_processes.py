"""Which processes on a GPU belong to others: docs/internals/energy-accounting.md, "Others on a GPU"."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattloop.wire.launcher import process_rank

PROCESSES = Path("/proc")
# The server of NVIDIA's Multi-Process Service has a context on behalf of its clients, which are listed, too. The kernel
# cuts names after 15 characters.
MPS_SERVER = "nvidia-cuda-mps"
# In the environment of all processes of a training of `wattloop run`, each with its own value.
TRAINING_VARIABLE = "WATTLOOP_LOCAL_TRAINING"
# Where the ranks of one launcher meet, by which its processes are known.
MEETING_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE")
MAX_ANCESTORS = 128
MAX_NAMED = 3
PARTIAL_LIST = "not all processes of the machine are visible from here; a container sees them with the host's PIDs"


@dataclass(frozen=True)
class ListedProcess:
    """A process of this machine.

    Attributes:
        name: Its program; empty if it belongs to another user who hides it.
        ancestors: The processes that started it, up to the first one of the machine or container.
        training: The training that it is a part of; empty if none is known.
    """

    pid: int
    name: str = ""
    ancestors: frozenset[int] = frozenset()
    training: str = ""

    def is_relative_of(self, other: ListedProcess) -> bool:
        """Whether two processes belong to one program.

        Example:
            >>> rank = ListedProcess(12, training="a")
            >>> rank.is_relative_of(ListedProcess(13, training="a")), rank.is_relative_of(ListedProcess(14))
            (True, False)
        """
        return (
            self.pid == other.pid
            or self.pid in other.ancestors
            or other.pid in self.ancestors
            or bool(self.training and self.training == other.training)
        )

    def __str__(self) -> str:
        """Its id and program, for messages."""
        return f"process {self.pid} ({self.name})" if self.name else f"process {self.pid} of another user"


def listed_process(pid: int, folder: Path = PROCESSES) -> ListedProcess | None:
    """A process by its id; None if it has ended."""
    stat = _stat_of(pid, folder)
    if stat is None:
        return ListedProcess(pid) if _is_hidden(pid) else None
    found = _name_and_parent(stat)
    if found is None:
        return None
    name, parent = found
    ancestors: set[int] = set()
    while parent > 0 and len(ancestors) < MAX_ANCESTORS:
        ancestors.add(parent)
        stat = _stat_of(parent, folder)
        above = None if stat is None else _name_and_parent(stat)
        parent = 0 if above is None else above[1]
    return ListedProcess(pid, name, frozenset(ancestors), _training(pid, folder))


def others_among(
    pids: Sequence[int], own: int, *, is_complete: bool, folder: Path = PROCESSES
) -> tuple[tuple[str, ...], str]:
    """The processes of others among those with a context on a GPU.

    Args:
        pids: NVML's list.
        own: The program that asks.
        is_complete: Whether the list has all processes of the machine, with the ids that are known here.
        folder: The folder of Linux's files about processes.

    Returns:
        Which they are, for messages; and why there may be more, which is empty if there are none.
    """
    me = listed_process(own, folder) or ListedProcess(own)
    found = [each for pid in pids if (each := listed_process(pid, folder)) is not None and each.name != MPS_SERVER]
    if is_complete:
        return _names(each for each in found if not each.is_relative_of(me)), ""
    # An id may be the host's, and be another process here.
    users = {int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal() and _has_gpu(entry)}
    others = _names(each for each in found if each.pid in users and not each.is_relative_of(me))
    if not others:
        relatives = (each for pid in users if (each := listed_process(pid, folder)) is not None)
        surplus = len(pids) - sum(each.is_relative_of(me) for each in relatives)
        others = (f"{surplus} more than this program has",) if surplus > 0 else ()
    return others, PARTIAL_LIST


def _names(processes: Iterable[ListedProcess]) -> tuple[str, ...]:
    return tuple(str(each) for each in sorted(processes, key=lambda each: each.pid))


def text_of(names: Sequence[str]) -> str:
    """The processes in one text, the first ones by name.

    Example:
        >>> text_of(["process 7 (python)"]), text_of(["a", "b", "c", "d", "e"])
        ('process 7 (python)', 'a, b, c and 2 more')
    """
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def _stat_of(pid: int, folder: Path) -> bytes | None:
    """What the kernel states of a process; None if there is none, or if it is hidden."""
    try:
        return (folder / str(pid) / "stat").read_bytes()
    except OSError:
        return None


def _name_and_parent(stat: bytes) -> tuple[str, int] | None:
    """A process's program and the one that started it; None of a process that has ended."""
    begin, _, rest = stat.rpartition(b")")
    fields = rest.split()
    if len(fields) < 2 or fields[0] in (b"Z", b"X"):
        return None
    return begin.partition(b"(")[2].decode(errors="replace"), int(fields[1])


def _is_hidden(pid: int) -> bool:
    """Whether a process without files runs: the mount option hidepid hides those of other users."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    # It has just begun, or is a zombie.
    return False


def _training(pid: int, folder: Path) -> str:
    try:
        entries = (folder / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    pairs = (each.partition(b"=") for each in entries)
    variables = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    if training := variables.get(TRAINING_VARIABLE):
        return training
    if process_rank(variables).ranks == 1:
        return ""
    return " ".join(f"{name}={variables[name]}" for name in MEETING_VARIABLES if name in variables)


def _has_gpu(process: Path) -> bool:
    try:
        return any(str(each.readlink()).startswith("/dev/nvidia") for each in (process / "fd").iterdir())
    except OSError:
        return False
