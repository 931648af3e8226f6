"""Behaviour of this machine's GPU energy counters: update times, and energy compared with integrated power.

``python benchmarks/energy_counter.py [--seconds 10] [--load 'COMMAND'] [--record FILE]`` reads as the agent does, and
estimates energy as the windows of a client do. It only reads. The command runs as a load during the second half. The
record is a CSV of every call: phase, begin_seconds, end_seconds, energy_millijoules, power_watts.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pynvml

from wattloop.energy.energy_timeline import EnergyTimeline
from wattloop.energy.gpu_reading import GpuReading
from wattloop.energy.power_history import energy_of_power
from wattloop.gpus.nvml import Gpu, Session
from wattloop_agent.monitor.nvml_readings import NvmlReadings

INTERVAL_SECONDS = 0.005
WARM_UP_SECONDS = 8.0
Row = tuple[str, float, float, int, float]


def describe() -> None:
    """Print the agent monitor's description of each GPU."""
    readings = NvmlReadings()
    for gpu in readings.describe(lambda _: True):
        sys.stdout.write(f"{gpu}\n")
    for status in readings.statuses():
        sys.stdout.write(f"{status}\n")
    with Session() as nvml:
        for device in nvml.gpus():
            graphics, memory = device.graphics_clocks_megahertz(), device.memory_clocks_megahertz()
            sys.stdout.write(
                f"driver {pynvml.nvmlSystemGetDriverVersion()}, node {device.minor_number}, "
                f"MIG {device.is_partitioned()}; "
                f"graphics clocks {graphics[-1]} to {graphics[0]} MHz in {len(graphics)} steps; "
                f"memory clocks {memory} MHz\n"
            )


def record(gpu: Gpu, phase: str, seconds: float) -> list[Row]:
    """Read the counter and the power repeatedly."""
    rows = []
    until = time.monotonic() + seconds
    while (begin := time.monotonic()) < until:
        energy = gpu.energy_millijoules()
        end = time.monotonic()
        rows.append((phase, begin, end, energy, gpu.instant_power_watts()))
        time.sleep(max(0.0, begin + INTERVAL_SECONDS - time.monotonic()))
    return rows


def report(phase: str, rows: list[Row]) -> None:
    """Print the durations of calls, the counter's updates, and energy compared with integrated power."""
    calls = sorted((end - begin) * 1e3 for _, begin, end, _, _ in rows)
    timeline = EnergyTimeline()
    for _, begin, end, energy, watts in rows:
        timeline.add(GpuReading("GPU", begin, end, energy, watts))
    edges = timeline.edges(0, final=False)
    gaps = sorted((after.seconds - before.seconds) * 1e3 for before, after in itertools.pairwise(edges))
    sys.stdout.write(
        f"{phase}: {len(rows)} calls of {calls[len(calls) // 2]:.3f} ms (p99 {calls[int(len(calls) * 0.99)]:.3f} ms); "
        f"{len(edges)} updates, one every {gaps[len(gaps) // 2]:.1f} ms ({gaps[0]:.1f} to {gaps[-1]:.1f})\n"
    )
    begin, end = edges[2].seconds, edges[-2].seconds
    counted = timeline.between(begin, end)
    assert counted is not None
    integrated = energy_of_power([(row[1], row[4]) for row in rows if begin <= row[1] <= end])
    sys.stdout.write(
        f"{phase}: {end - begin:.2f} s: by the counter {counted.joules:.1f} ± {counted.deviation_joules:.1f} J, "
        f"by power {integrated.joules:.1f} ± {integrated.uncertainty_joules:.1f} J\n"
    )


def main() -> int:
    """Measure idle, then under the load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--load", help="a command that keeps the GPU busy until it is terminated")
    parser.add_argument("--record", type=Path, help="output file, CSV")
    arguments = parser.parse_args()
    describe()
    with Session() as nvml:
        gpu = nvml.gpus()[0]
        rows = {"idle": record(gpu, "idle", arguments.seconds)}
        if arguments.load:
            with subprocess.Popen(shlex.split(arguments.load)) as load:
                time.sleep(WARM_UP_SECONDS)
                rows["load"] = record(gpu, "load", arguments.seconds)
                load.terminate()
    for phase, taken in rows.items():
        report(phase, taken)
    if arguments.record:
        with arguments.record.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("phase", "begin_seconds", "end_seconds", "energy_millijoules", "power_watts"))
            for taken in rows.values():
                writer.writerows(taken)
    return 0


if __name__ == "__main__":
    sys.exit(main())
