"""Accuracy of the agent's energy account between two readings of the energy counter, with the agent's own code.

``python benchmarks/counter_interval.py [--seconds 30] [--counter-interval 10] [--load 'COMMAND']`` only reads. The
sampler samples at 10 Hz and reads the counter at its interval. As a reference, this program reads the counter every 20
ms and estimates energy as the windows of a client do. It compares each sample's account with the reference, both as
reported immediately and as corrected by the next reading. The command runs as a load.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator

from wattloop.energy.energy_timeline import EnergyTimeline
from wattloop.energy.gpu_reading import GpuReading
from wattloop.gpus.nvml import Session
from wattloop_agent.monitor.energy.gpu_account import GpuAccount
from wattloop_agent.monitor.gpu_sampler import Sampler
from wattloop_agent.monitor.nvml_readings import NvmlReadings

SAMPLE_SECONDS = 0.1
REFERENCE_SECONDS = 0.02
WARM_UP_SECONDS = 8.0
# (monotonic clock in seconds, reported energy in joules, its uncertainty in joules).
Reported = tuple[float, float, float]


@contextlib.contextmanager
def loaded(command: str | None) -> Iterator[None]:
    """Run the load during a block."""
    if command is None:
        yield
        return
    with subprocess.Popen(shlex.split(command)) as load:
        time.sleep(WARM_UP_SECONDS)
        yield
        load.terminate()


def record(seconds: float, counter_interval: float) -> tuple[GpuAccount, int, list[Reported], EnergyTimeline, int]:
    """The account, its first counter, the reported energies, the reference, and the number of counter readings."""
    reported: list[Reported] = []
    taken: list[GpuReading] = []
    reference = EnergyTimeline()
    sampler = Sampler(NvmlReadings(), lambda _: None)
    sampler.start(SAMPLE_SECONDS, lambda samples: taken.extend(samples[:1]), counter_interval)
    with Session() as nvml:
        gpu = nvml.gpus()[0]
        account = GpuAccount(gpu.uuid, gpu.name)
        begin = time.monotonic()
        while (now := time.monotonic()) < begin + seconds:
            if now >= begin + len(taken) * SAMPLE_SECONDS:
                sampler.sample()
                account.add(taken[-1])
                wire = account.to_wire()
                reported.append(
                    (taken[-1].end_seconds, wire.energy_millijoules / 1e3, wire.uncertainty_millijoules / 1e3)
                )
            before = time.monotonic()
            counter = gpu.energy_millijoules()
            reference.add(GpuReading(gpu.uuid, before, time.monotonic(), counter, gpu.instant_power_watts()))
            time.sleep(REFERENCE_SECONDS)
    counters = [sample.energy_millijoules for sample in taken if sample.energy_millijoules is not None]
    return account, counters[0], reported, reference, len(counters)


def report(name: str, reported: list[Reported], reference: EnergyTimeline, base_millijoules: int) -> None:
    """Print the errors of the reported energies, and how many are within the stated uncertainty."""
    edges = reference.edges(0, final=False)
    errors, stated, within = [], [], 0
    for moment, joules, uncertainty in reported:
        if not edges[2].seconds <= moment <= edges[-2].seconds:
            continue
        expected = reference.at(moment)
        assert expected is not None
        error = abs(joules - (expected.joules - base_millijoules / 1e3))
        errors.append(error)
        stated.append(uncertainty)
        within += error <= uncertainty + 2 * expected.deviation_joules
    mean_square = (sum(error * error for error in errors) / len(errors)) ** 0.5
    sys.stdout.write(
        f"{name:32} {mean_square:10.1f} {max(errors):8.1f} {sum(stated) / len(stated):12.1f} {max(stated):10.1f} "
        f"{within:8} of {len(errors)}\n"
    )


def main() -> int:
    """Measure idle, or under the load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--counter-interval", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--load", help="a command that keeps the GPU busy until it is ended")
    arguments = parser.parse_args()
    with loaded(arguments.load):
        account, base, reported, reference, counters = record(arguments.seconds, arguments.counter_interval)
    sys.stdout.write(
        f"{account.product}: {len(reported)} samples, {counters} counter readings, "
        f"{reported[-1][1]:.1f} J in {arguments.seconds:g} s\n"
        f"{'joules':32} {'error, rms':>10} {'max':>8} {'stated, mean':>12} {'max':>10} {'within':>8}\n"
    )
    report("as reported immediately", reported, reference, base)
    later = [(moment, account.snapshot_at(moment)) for moment, _, _ in reported]
    snapshots = [
        (at, snapshot.energy_millijoules / 1e3, snapshot.uncertainty_millijoules / 1e3) for at, snapshot in later
    ]
    report("as corrected afterwards", snapshots, reference, base)
    return 0


if __name__ == "__main__":
    sys.exit(main())
