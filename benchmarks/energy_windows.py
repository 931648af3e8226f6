"""Energy windows: the cost of begin and end, the overhead on a training step, and the accuracy by window length.

``python benchmarks/energy_windows.py`` uses simulated GPUs. ``python benchmarks/energy_windows.py --nvml-library
system`` reads this machine's GPU 0, which it loads with PyTorch where it is installed; it changes no setting. It prints
Markdown tables, and JSON with ``--json FILE``. It takes about four minutes.

The overhead compares the same step without a monitor, with a window of Wattloop's, with a window of Zeus' (where it is
installed), and between two readings of the energy counter, in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pynvml

from wattloop import EnergyMonitor
from wattloop.gpus.nvml import Gpu, Session

STEP_SECONDS = 0.005
STEPS_PER_BLOCK = 60
WARM_UP_STEPS = 10
ROUNDS = 24
CALLS = 1500
WARM_UP_SECONDS = 4.0
# Length and number of the windows whose energy is compared.
LENGTHS = ((0.05, 50), (0.1, 30), (0.3, 20), (1.0, 8), (5.0, 2), (20.0, 1))
LONG_SECONDS = 60.0


@dataclass
class Hardware:
    """The GPU under test.

    Attributes:
        name: Its model, or that it is simulated.
        load: Keeps the GPU busy in another process or thread during a block.
        exact_joules: The exact energy used so far; None on real hardware.
    """

    name: str
    load: Callable[[], contextlib.AbstractContextManager[None]]
    exact_joules: Callable[[], float] | None


def matrix_work(ready: Any, ends: Any) -> None:
    """In a child process: multiply matrices on GPU 0 until the parent says so."""
    import torch  # noqa: PLC0415

    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    while not ends.is_set():
        for _ in range(20):
            a @ a
        torch.cuda.synchronize()
        ready.set()


@contextlib.contextmanager
def torch_load() -> Iterator[None]:
    """A steady load by a process of its own."""
    context = multiprocessing.get_context("spawn")
    ready, ends = context.Event(), context.Event()
    process = context.Process(target=matrix_work, args=(ready, ends), daemon=True)
    process.start()
    if not ready.wait(60):
        raise RuntimeError("the load did not start within 60 s")
    time.sleep(WARM_UP_SECONDS)
    try:
        yield
    finally:
        ends.set()
        process.join(20)


@contextlib.contextmanager
def hardware(library: str) -> Iterator[Hardware]:
    """Simulated GPUs, or the machine's."""
    if library != "simulated":
        if library != "system":
            os.environ["WATTLOOP_NVML_LIBRARY"] = library
            ctypes.CDLL(library)
        with Session() as nvml:
            gpu = nvml.gpus()[0]
            name = f"{gpu.name}, driver {pynvml.nvmlSystemGetDriverVersion()}"
        yield Hardware(name, torch_load if has_torch() else contextlib.nullcontext, None)
        return
    import nvml_simulator  # noqa: PLC0415
    from nvml_simulator.compilation import build_library  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="wattloop-benchmark-") as folder:
        state = nvml_simulator.create(Path(folder) / "gpus", model="H200", count=1, clock="wall", permission="anyone")
        os.environ |= {nvml_simulator.STATE_VARIABLE: str(state), "WATTLOOP_NVML_LIBRARY": str(build_library())}
        nvml_simulator.load()
        with nvml_simulator.Machine(state) as machine:
            speed = nvml_simulator.model_named("H200").teraflops_per_second

            @contextlib.contextmanager
            def load() -> Iterator[None]:
                ends = threading.Event()

                def work() -> None:
                    while not ends.is_set():
                        machine.occupy(0, speed * 30.0, 0.8)

                thread = threading.Thread(target=work, daemon=True)
                thread.start()
                time.sleep(1.0)
                yield
                ends.set()

            yield Hardware("simulated H200", load, lambda: machine.describe().gpus[0].energy_microjoules / 1e6)


def has_torch() -> bool:
    """Whether PyTorch can use a GPU."""
    if find_spec("torch") is None:
        return False
    import torch  # noqa: PLC0415

    return torch.cuda.is_available()


def microseconds(call: Callable[[], object], count: int) -> list[float]:
    """The duration of each of many calls."""
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        taken.append((time.perf_counter() - begin) * 1e6)
    return taken


def cost_of_calls(machine: Hardware) -> dict[str, float]:
    """Median and 99th percentile of begin and end, in microseconds, the GPU idle and busy."""
    found: dict[str, float] = {}
    monitor = EnergyMonitor(gpus=[0])
    for state in ("idle", "busy"):
        with machine.load() if state == "busy" else contextlib.nullcontext():
            begins, ends = [], []
            for _ in range(CALLS):
                begins += microseconds(lambda: monitor.begin_window("cost"), 1)
                ends += microseconds(lambda: monitor.end_window("cost"), 1)
                time.sleep(0.0005)
            for title, taken in (("begin", begins), ("end", ends)):
                ordered = sorted(taken)
                found[f"{title}_{state}_median_microseconds"] = round(statistics.median(ordered), 2)
                found[f"{title}_{state}_p99_microseconds"] = round(ordered[int(0.99 * len(ordered))], 2)
    return found


def calibrated(step_of: Callable[[int], Callable[[], None]]) -> Callable[[], None]:
    """The step whose size makes it take about `STEP_SECONDS`."""
    size = 1
    for _ in range(40):
        taken = statistics.median(microseconds(step_of(size), 9)) / 1e6
        if abs(taken / STEP_SECONDS - 1) < 0.1:
            break
        size = max(1, round(size * min(max(STEP_SECONDS / taken, 0.5), 2.0)))
    return step_of(size)


def python_step_of(size: int) -> Callable[[], None]:
    """A step of pure Python."""

    def step() -> None:
        total = 0
        for number in range(size):
            total += number * number

    return step


def torch_step_of(size: int) -> Callable[[], None]:
    """A step of matrix products on GPU 0, waited for."""
    import torch  # noqa: PLC0415

    a = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(size):
            a @ a
        torch.cuda.synchronize()

    return step


@contextlib.contextmanager
def window_of(variant: str) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """The calls before and after each step."""
    if variant == "none":
        yield (lambda: None), (lambda: None)
    elif variant == "wattloop":
        monitor = EnergyMonitor(gpus=[0])
        time.sleep(0.3)
        yield (lambda: monitor.begin_window("step")), (lambda: monitor.end_window("step") and None)
        del monitor
    elif variant == "zeus":
        from zeus.monitor import ZeusMonitor  # noqa: PLC0415

        peer = ZeusMonitor(gpu_indices=[0], cpu_indices=[], approx_instant_energy=True)
        yield (
            lambda: peer.begin_window("step", sync_execution=False),
            lambda: peer.end_window("step", sync_execution=False) and None,
        )
    else:
        with Session() as nvml:
            gpu = nvml.gpus()[0]
            yield (lambda: gpu.energy_millijoules() and None), (lambda: gpu.energy_millijoules() and None)
    gc.collect()
    time.sleep(0.15)


def overhead(step_of: Callable[[int], Callable[[], None]]) -> dict[str, dict[str, float]]:
    """By variant, the time of a step with its window, and how much more it is than without."""
    variants = ["none", "wattloop", "counter", *(["zeus"] if find_spec("zeus") else [])]
    blocks: dict[str, list[float]] = {variant: [] for variant in variants}
    calls: dict[str, list[float]] = {variant: [] for variant in variants}
    processor: dict[str, list[float]] = {variant: [] for variant in variants}
    for number in range(ROUNDS):
        # In each round, since other programs may change the machine's speed.
        step = calibrated(step_of)
        # In another order each time, so that a drift of the machine's speed favours none.
        for variant in variants[number % len(variants) :] + variants[: number % len(variants)]:
            with window_of(variant) as (begin, end):
                for _ in range(WARM_UP_STEPS):
                    step()
                taken = []
                used = time.process_time()
                for _ in range(STEPS_PER_BLOCK):
                    started = time.perf_counter()
                    begin()
                    begun = time.perf_counter()
                    step()
                    done = time.perf_counter()
                    end()
                    ended = time.perf_counter()
                    taken.append(ended - started)
                    calls[variant].append(ended - done + begun - started)
                processor[variant].append((time.process_time() - used) / STEPS_PER_BLOCK)
            blocks[variant].append(statistics.median(taken))
    bare = blocks["none"]
    return {
        variant: {
            "step_milliseconds": round(statistics.median(times) * 1e3, 4),
            "more_percent": round(
                statistics.median((time / base - 1) * 100 for time, base in zip(times, bare, strict=True)), 3
            ),
            "processor_milliseconds": round(statistics.median(processor[variant]) * 1e3, 4),
            "calls_percent": round(statistics.median(calls[variant]) / statistics.median(bare) * 100, 3),
        }
        for variant, times in blocks.items()
    }


def accuracy(machine: Hardware) -> dict[str, Any]:
    """By window length, the error against the long integral (or the exact one), and the stated uncertainty."""
    monitor = EnergyMonitor(gpus=[0])
    taken: list[tuple[float, Any, float]] = []
    with machine.load(), Session() as nvml:
        gpu = nvml.gpus()[0]
        time.sleep(4.0)
        counter = stepped(gpu)
        monitor.begin_window("long")
        begin = time.monotonic()
        exact = machine.exact_joules() if machine.exact_joules else 0.0
        for length, count in LENGTHS:
            for _ in range(count):
                # Just after the begin, and just after the end, so that both are late by the same time.
                monitor.begin_window("window")
                before = machine.exact_joules() if machine.exact_joules else 0.0
                time.sleep(length)
                measurement = monitor.end_window("window")
                after = machine.exact_joules() if machine.exact_joules else 0.0
                taken.append((length, measurement, after - before))
                time.sleep(0.0137)
        time.sleep(max(begin + LONG_SECONDS - time.monotonic(), 0.0))
        long = monitor.end_window("long")
        exact = (machine.exact_joules() if machine.exact_joules else 0.0) - exact
        after_counter = stepped(gpu)
        time.sleep(1.0)
    # From one step of the counter to another; the window is a few milliseconds off at both ends.
    watts = (after_counter[1] - counter[1]) / (after_counter[0] - counter[0])
    reference = exact if machine.exact_joules else watts * long.time_seconds
    result: dict[str, Any] = {"mean_watts": round(watts, 2), "lengths": {}}
    for length, _ in LENGTHS:
        chosen = [each for each in taken if each[0] == length]
        result["lengths"][f"{length:g}"] = compared(
            [
                (measurement, joules if machine.exact_joules else watts * measurement.time_seconds)
                for _, measurement, joules in chosen
            ]
        )
    result["lengths"][f"{long.time_seconds:.0f}"] = compared([(long, reference)])
    result["incomplete"] = sorted({each.reason for _, each, _ in taken if not each.complete})
    return result


def stepped(gpu: Gpu) -> tuple[float, float]:
    """The next step of the counter: its time, and the counter in joules."""
    last = gpu.energy_millijoules()
    while True:
        begin = time.monotonic()
        counter = gpu.energy_millijoules()
        end = time.monotonic()
        if counter != last:
            return (begin + end) / 2, counter / 1e3
        time.sleep(0.0005)


def compared(pairs: list[tuple[Any, float]]) -> dict[str, float]:
    """The errors of measurements."""
    errors = [measurement.total_energy_joules / joules - 1 for measurement, joules in pairs]
    claimed = [measurement.uncertainty_joules / joules for measurement, joules in pairs]
    standard = [error / each for error, each in zip(errors, claimed, strict=True)]
    return {
        "windows": len(pairs),
        "mean_error_percent": round(statistics.fmean(errors) * 100, 3),
        "rms_error_percent": round(root_mean_square(errors) * 100, 3),
        "largest_error_percent": round(max(map(abs, errors)) * 100, 3),
        "stated_uncertainty_percent": round(root_mean_square(claimed) * 100, 3),
        "error_in_uncertainties_rms": round(root_mean_square(standard), 2),
    }


def root_mean_square(values: list[float]) -> float:
    """Root mean square."""
    return math.sqrt(statistics.fmean(value * value for value in values))


def print_tables(result: dict[str, Any]) -> None:
    """Markdown."""
    write = sys.stdout.write
    write(f"{result['gpu']}\n\n| call | GPU | median, µs | 99th percentile, µs |\n|---|---|--:|--:|\n")
    for state in ("idle", "busy"):
        for call in ("begin", "end"):
            values = [result["calls"][f"{call}_{state}_{kind}_microseconds"] for kind in ("median", "p99")]
            write(f"| {call} | {state} | {values[0]} | {values[1]} |\n")
    for title, variants in result["overhead"].items():
        write(
            f"\n{title}\n\n| around each step | step, ms | more than without, % | CPU a step, ms | begin and end, % |\n"
        )
        write("|---|--:|--:|--:|--:|\n")
        for variant, figures in variants.items():
            write(f"| {variant} | {' | '.join(str(value) for value in figures.values())} |\n")
    names = ("windows", "mean error, %", "rms, %", "largest, %", "stated, %", "error in stated uncertainties, rms")
    write(f"\nsteady load, {result['accuracy']['mean_watts']} W\n\n| window, s | {' | '.join(names)} |\n")
    write(f"|---|{'--:|' * len(names)}\n")
    for length, figures in result["accuracy"]["lengths"].items():
        write(f"| {length} | {' | '.join(str(value) for value in figures.values())} |\n")
    write(f"\nincomplete: {result['accuracy']['incomplete'] or 'none'}\n")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvml-library", default="simulated", help="simulated, system, or a path (default: simulated)")
    parser.add_argument("--json", type=Path, help="output file, JSON")
    options = parser.parse_args()
    with hardware(options.nvml_library) as machine:
        result: dict[str, Any] = {"gpu": machine.name, "calls": cost_of_calls(machine)}
        result["accuracy"] = accuracy(machine)
        result["overhead"] = {"a step of pure Python": overhead(python_step_of)}
        if options.nvml_library != "simulated" and has_torch():
            result["overhead"]["a step of matrix products on the GPU"] = overhead(torch_step_of)
    print_tables(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
