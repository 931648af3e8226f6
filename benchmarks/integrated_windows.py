"""Energy of windows on a GPU without an energy counter, against the counter of the same GPU.

``python benchmarks/integrated_windows.py`` only reads NVML, on GPU 0 of this machine, which needs an energy counter and
PyTorch. Two processes measure the same windows with `wattloop.EnergyMonitor`. In one of them the driver's counter is
refused, so that the monitor integrates power. The load is bursts and pauses of 0.05 to 0.8 s. For each length of a
window, it prints the relative error of the integral, and the error in units of the stated uncertainty of both.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import pynvml

import wattloop

WINDOWS = {0.5: 20, 2.0: 12, 10.0: 4, 30.0: 1}
SHORTEST_BURST_SECONDS, LONGEST_BURST_SECONDS = 0.05, 0.8
WARM_UP_SECONDS = 3.0


class Energy(NamedTuple):
    """The energy of a window in joules, and one standard deviation of it."""

    joules: float
    deviation_joules: float


def measure(refused: bool) -> None:
    """Begin and end windows as standard input says, a line each, and print the energy of each ended window."""
    if refused:

        def refuse(*_: object) -> int:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        pynvml.nvmlDeviceGetTotalEnergyConsumption = refuse
    monitor = wattloop.EnergyMonitor(gpus=[0])
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "begin\n":
            monitor.begin_window("window")
            print("begun", flush=True)
        else:
            measured = monitor.end_window("window")
            print(json.dumps([measured.total_energy_joules, measured.uncertainty_joules]), flush=True)


class Meter:
    """A process that measures windows."""

    def __init__(self, kind: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.answer() == "ready"

    def say(self, line: str) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """The next line of the process."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextlib.contextmanager
def meters() -> Iterator[list[Meter]]:
    """A process with the counter, and one without."""
    both = [Meter("counter"), Meter("refused")]
    try:
        yield both
    finally:
        for meter in both:
            meter.close()


class Load:
    """Matrix products on GPU 0 in bursts of random length, from one seed."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 - the measuring processes do without it

        self._torch = torch
        self._matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        self._random = random.Random(3)

    def run(self, seconds: float) -> None:
        """Load the GPU for a time."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            stop = min(end, now + self._random.uniform(SHORTEST_BURST_SECONDS, LONGEST_BURST_SECONDS))
            if self._random.random() < 0.5:
                while time.monotonic() < stop:
                    self._matrix @ self._matrix
                    self._torch.cuda.synchronize()
            else:
                time.sleep(stop - now)


def window(both: list[Meter], load: Load, seconds: float) -> tuple[Energy, Energy]:
    """The energy of one window by the counter, and by the integral."""
    for meter in both:
        meter.say("begin")
    for meter in both:
        meter.answer()
    load.run(seconds)
    for meter in both:
        meter.say("end")
    counter, integral = (Energy(*json.loads(meter.answer())) for meter in both)
    return counter, integral


def main() -> None:
    """Measure windows of each length and print a row of each."""
    load = Load()
    print(f"{'window s':>8} {'windows':>7} {'mean error':>10} {'largest':>8} {'rms in deviations':>17} {'largest':>8}")
    with meters() as both:
        load.run(WARM_UP_SECONDS)
        for seconds, count in WINDOWS.items():
            pairs = [window(both, load, seconds) for _ in range(count)]
            relative = [integral.joules / counter.joules - 1 for counter, integral in pairs]
            deviations = [
                (integral.joules - counter.joules) / math.hypot(integral.deviation_joules, counter.deviation_joules)
                for counter, integral in pairs
            ]
            print(
                f"{seconds:8} {count:7} {sum(relative) / count:+10.1%} {max(relative, key=abs):+8.1%} "
                f"{math.hypot(*deviations) / math.sqrt(count):17.2f} {max(map(abs, deviations)):8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:] in (["counter"], ["refused"]):
        measure(sys.argv[1:] == ["refused"])
    else:
        main()
