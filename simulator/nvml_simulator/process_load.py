"""Load on simulated GPUs on behalf of processes that do not know the simulator.

While a process runs, the simulated GPUs are busy for a share of its time: a given share, or as long as the
process and its descendants use a processor. With the virtual clock, a second of the process takes as long on the
GPUs as they need for that work: at a lower power limit it takes longer, as for a real training.

``python -m nvml_simulator.process_load STATE LOAD`` reads the ids of processes from its standard input, one a
line, and follows each until its end. It ends with its standard input.
"""

import argparse
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nvml_simulator.models import model_named
from nvml_simulator.simulated_machine import Machine
from wattloop.errors import UsageError

POLL_SECONDS = 0.05
PROCESSOR_TIME = "cpu"
# Processor time that is counted in ticks of 10 ms may be late by this much; a process with several threads gets
# no more than a second of GPU time in a second.
MAX_CARRIED_SECONDS = 0.1
# At this share of its dynamic power, a GPU of every model keeps its highest clock at its default power limit, so that
# a busy second of the process is a second of the GPU.
INTENSITY = 0.6
PROCESSES = Path("/proc")


class ProcessLoad:
    """Keeps simulated GPUs busy while processes run.

    Args:
        machine: The simulated GPUs, with the virtual clock.
        busy: Share of a process's time in which the GPUs are busy at their highest clock; None: as long as it uses
            a processor.
        seconds: Returns the time.
        processor_seconds: Returns the processor time of a process and its descendants; None if it has ended.
    """

    def __init__(
        self,
        machine: Machine,
        busy: float | None,
        seconds: Callable[[], float] = time.monotonic,
        processor_seconds: Callable[[int], float | None] | None = None,
    ) -> None:
        self._machine = machine
        self._busy = busy
        self._seconds = seconds
        self._processor_seconds = processor_seconds_of if processor_seconds is None else processor_seconds
        gpus = machine.describe()
        self._gpus = list(range(len(gpus.gpus)))
        self._teraflops_per_second = model_named(gpus.model).teraflops_per_second
        self._processes: dict[int, float] = {}
        self._last = seconds()

    @property
    def follows(self) -> bool:
        """Whether a process is followed."""
        return bool(self._processes)

    def follow(self, process: int) -> None:
        """Follow a process from now on, until it ends."""
        if not self._processes:
            self._last = self._seconds()
        self._processes[process] = self._processor_seconds(process) or 0.0

    def advance(self) -> None:
        """Let the GPUs do what the processes gave them since the last call."""
        now = self._seconds()
        elapsed, self._last = now - self._last, now
        busy = {each: self._busy_seconds(each, elapsed) for each in list(self._processes)}
        busiest = max(busy, key=lambda each: busy[each], default=0)
        busy_seconds = busy.get(busiest, 0.0)
        if elapsed <= 0 or not self._gpus:
            return
        if busy_seconds > 0:
            self._machine.act_for(busiest)
            self._machine.occupy(self._gpus, work=self._teraflops_per_second * busy_seconds, intensity=INTENSITY)
        if busy_seconds < elapsed:
            self._machine.idle(self._gpus, elapsed - busy_seconds)

    def _busy_seconds(self, process: int, elapsed: float) -> float:
        used = self._processor_seconds(process)
        if used is None:
            del self._processes[process]
            return 0.0
        if self._busy is not None:
            return self._busy * elapsed
        busy = min(max(used - self._processes[process], 0.0), elapsed)
        self._processes[process] = max(self._processes[process] + busy, used - MAX_CARRIED_SECONDS)
        return busy


def processor_seconds_of(process: int, folder: Path = PROCESSES) -> float | None:
    """Processor seconds of a process, its session and its descendants, also of ended ones; None if it has ended."""
    ticks: dict[int, int] = {}
    parents: dict[int, tuple[int, int]] = {}
    for entry in folder.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(entry.name) == process and fields[0] == "Z":
            return None
        parents[int(entry.name)] = int(fields[1]), int(fields[3])
        ticks[int(entry.name)] = sum(int(each) for each in fields[11:15])
    if process not in ticks:
        return None
    members = {each for each, (_, session) in parents.items() if session == process} | {process}
    while more := {each for each, (parent, _) in parents.items() if parent in members} - members:
        members |= more
    return sum(ticks[each] for each in members) / os.sysconf("SC_CLK_TCK")


def busy_share(text: str) -> float | None:
    """The share of a load: from 0 to 1; None for ``cpu``.

    Example:
        >>> busy_share("0.8"), busy_share("cpu")
        (0.8, None)
    """
    if text == PROCESSOR_TIME:
        return None
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"found the load {text!r}, expected cpu, or a share from 0 to 1")
    return share


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow the processes whose ids come on the standard input."""
    parser = argparse.ArgumentParser(prog="python -m nvml_simulator.process_load", description=__doc__)
    parser.add_argument("state", help="state file of the simulated GPUs")
    parser.add_argument("load", help="cpu, or the share of the time in which the GPUs are busy")
    options = parser.parse_args(arguments)
    with Machine(options.state) as machine:
        load = ProcessLoad(machine, busy_share(options.load))
        # The caller starts no process before the load is ready for it.
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            readable, _, _ = select.select([sys.stdin.fileno()], [], [], POLL_SECONDS if load.follows else None)
            if readable:
                line = os.read(sys.stdin.fileno(), 64)
                if not line:
                    return 0
                for process in line.split():
                    load.follow(int(process))
            load.advance()


if __name__ == "__main__":
    sys.exit(main())
