"""How right the agent's account of a GPU is between two readings of its energy counter, by the agent's own code.

``python benchmarks/seldom_counter.py [--seconds 30] [--counter-interval 10] [--load 'COMMAND']`` reads only; nothing is
ever set. The sampler looks at 10 Hz and reads the counter at its interval; every 20 ms this program reads the counter
for itself, and interpolates between its steps: the truth that each look is held against, as it is told at once and as
it is known once the counter was read again. The command, where given, runs beside it as a load.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator

from wattloop.energy import CounterHistory, Reading, energy_at
from wattloop.nvml import Session
from wattloop_agent.monitor.energy.gpu_account import GpuAccount
from wattloop_agent.monitor.energy.samples import GpuSample
from wattloop_agent.monitor.nvml_readings import NvmlReadings
from wattloop_agent.monitor.sampler import Sampler

SAMPLE_SECONDS = 0.1
TRUTH_SECONDS = 0.02
WARM_UP_SECONDS = 8.0
# In joules: (monotonic clock, energy told, its uncertainty).
Told = tuple[float, float, float]


@contextlib.contextmanager
def loaded(command: str | None) -> Iterator[None]:
    """The load, for the time of a block."""
    if command is None:
        yield
        return
    with subprocess.Popen(shlex.split(command)) as load:
        time.sleep(WARM_UP_SECONDS)
        yield
        load.terminate()


def record(seconds: float, counter_interval: float) -> tuple[GpuAccount, int, list[Told], CounterHistory, int]:
    """The account, the counter that it began with, what it told at each look, the truth, counters it took for that."""
    told: list[Told] = []
    taken: list[GpuSample] = []
    truth = CounterHistory(limit=100_000)
    sampler = Sampler(NvmlReadings(), lambda _: None)
    sampler.start(SAMPLE_SECONDS, lambda samples: taken.extend(samples[:1]), counter_interval)
    with Session() as nvml:
        gpu = nvml.gpus()[0]
        account = GpuAccount(gpu.uuid, gpu.name)
        begin = time.monotonic()
        while (now := time.monotonic()) < begin + seconds:
            if now >= begin + len(taken) * SAMPLE_SECONDS:
                sampler.look()
                account.add(taken[-1])
                wire = account.to_wire()
                told.append((taken[-1].end_seconds, wire.energy_millijoules / 1e3, wire.uncertainty_millijoules / 1e3))
            before = time.monotonic()
            counter = gpu.energy_millijoules()
            truth.add(Reading(before, time.monotonic(), counter))
            time.sleep(TRUTH_SECONDS)
    counters = [sample.counter_millijoules for sample in taken if sample.counter_millijoules is not None]
    return account, counters[0], told, truth, len(counters)


def report(name: str, told: list[Told], truth: CounterHistory, base_millijoules: int) -> None:
    """How far what was told was off, and whether it was within what it said of itself."""
    edges = truth.edges()
    offs, stated, within = [], [], 0
    for moment, joules, uncertainty in told:
        if not edges[2].time_seconds <= moment <= edges[-2].time_seconds:
            continue
        true = energy_at(edges, moment)
        off = abs(joules - (true.joules - base_millijoules / 1e3))
        offs.append(off)
        stated.append(uncertainty)
        within += off <= uncertainty + true.uncertainty_joules
    mean_square = (sum(off * off for off in offs) / len(offs)) ** 0.5
    sys.stdout.write(
        f"{name:32} {mean_square:8.1f} {max(offs):8.1f} {sum(stated) / len(stated):12.1f} {max(stated):10.1f} "
        f"{within:8} of {len(offs)}\n"
    )


def main() -> int:
    """Idle, or under the load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--counter-interval", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--load", help="a command that keeps the GPU busy until it is ended")
    arguments = parser.parse_args()
    with loaded(arguments.load):
        account, base, told, truth, counters = record(arguments.seconds, arguments.counter_interval)
    sys.stdout.write(
        f"{account.product}: {len(told)} looks, {counters} counters, {told[-1][1]:.1f} J in {arguments.seconds:g} s\n"
        f"{'joules':32} {'off, rms':>8} {'most':>8} {'stated, mean':>12} {'most':>10} {'within':>8}\n"
    )
    report("as told at once", told, truth, base)
    later = [(moment, account.snapshot_at(moment)) for moment, _, _ in told]
    snapshots = [(at, mark.energy_millijoules / 1e3, mark.uncertainty_millijoules / 1e3) for at, mark in later]
    report("as known afterwards", snapshots, truth, base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
