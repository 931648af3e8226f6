"""Bias by the order of power limits on GPUs that heat up, and loss of the choice on measured profiles.

``python -P benchmarks/limit_order.py [--quick]`` uses simulated GPUs with a thermal model in virtual time, and the
measured profiles in tests/data. Part 1 chooses among nine limits on a GPU that has trained at its maximum for minutes:
by one pass from the maximum down, and by the sequential design; "settled" is the right choice, at the temperature that
the GPU settles at under each limit. Part 2 replays measured profiles with noise, and part 3 what `wattloop.Run`
measures: one pass, or the sequential design with at most twice as many windows. Part 4 counts the intervals of
energy and time that contain the settled value, after hot and cold starts.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import nvml_simulator
from nvml_simulator import Machine, ThermalModel
from wattloop.power.selectors import (
    Cost,
    Energy,
    MaxSlowdown,
    MeasuredLimit,
    Selector,
    Time,
    comparison,
)
from wattloop.power.sequential_design import Mode, Requirements, SequentialDesign
from wattloop.power.windows import PowerWindow, Totals, WindowRecorder
from wattloop.run.limit_choice import MAX_WINDOWS_PER_LIMIT
from wattloop.wire.training_messages import LimitMeasurement

DATA = Path(__file__).parents[1] / "tests" / "data"
LIMITS = tuple(400.0 - 37.5 * place for place in range(9))
STEP_TERAFLOPS = 62.4
SETTLING_STEPS = 2500
STEP_NOISE = 0.03
WINDOW_NOISE = 0.01
WINDOW_SECONDS = 6.0
STEPS_OF_WINDOW = 20
RUN_NOISES = (0.01, 0.03)
INTENSITY = 0.9
SELECTORS: tuple[Selector, ...] = (Energy(), Time(), Cost(0.5), MaxSlowdown(1.1))


class HotGpu:
    """A simulated A100 with a thermal model, hot from minutes at its highest limit, or cold."""

    def __init__(self, folder: Path, leakage: float, seed: int, *, cold: bool = False) -> None:
        path = nvml_simulator.create(folder / f"{leakage}-{seed}-{random.random()}", count=1, clock="virtual")
        self.machine = Machine(path)
        self.machine.set_thermal_model(ThermalModel(leakage_watts_per_kelvin=leakage))
        self._noise = random.Random(seed)
        self.machine.occupy(0, (1 if cold else SETTLING_STEPS) * STEP_TERAFLOPS, INTENSITY)

    def step(self, noise: float = STEP_NOISE) -> None:
        """A training step."""
        self.machine.occupy(0, STEP_TERAFLOPS * math.exp(self._noise.gauss(0.0, noise)), INTENSITY)

    def totals(self) -> Totals:
        """Energy counter and time."""
        gpu = self.machine.describe().gpus[0]
        return Totals(gpu.counter_millijoules / 1e3, gpu.time_seconds)

    def window(self, limit: float) -> PowerWindow:
        """A window under a limit."""
        self.machine.set_power_limit_as_another_actor(0, limit)
        recorder = WindowRecorder(limit)
        while True:
            self.step()
            if recorder.step_done(1) and (window := recorder.add_totals(self.totals())) is not None:
                return window

    def settled(self, limit: float) -> MeasuredLimit:
        """Energy and time of a step at the temperature that the GPU settles at."""
        self.machine.set_power_limit_as_another_actor(0, limit)
        self.machine.occupy(0, SETTLING_STEPS * STEP_TERAFLOPS, INTENSITY)
        begin = self.machine.describe().gpus[0]
        self.machine.occupy(0, 300 * STEP_TERAFLOPS, INTENSITY)
        end = self.machine.describe().gpus[0]
        energy = (end.energy_microjoules - begin.energy_microjoules) / 1e6
        return MeasuredLimit(limit, energy / 300, (end.time_seconds - begin.time_seconds) / 300)


def one_pass(gpu: HotGpu, limits: Sequence[float]) -> list[MeasuredLimit]:
    """Each limit once, in this order."""
    windows = [gpu.window(limit) for limit in limits]
    return [
        MeasuredLimit(each.power_limit_watts, each.energy_joules / each.samples, each.time_seconds / each.samples)
        for each in sorted(windows, key=lambda window: -window.power_limit_watts)
    ]


def of_a_run_on(gpu: HotGpu, selector: Selector) -> tuple[float, float]:
    """The limit that a run chooses, and the seconds of its windows."""
    profiling = SequentialDesign(LIMITS, 1, selector, max_windows=MAX_WINDOWS_PER_LIMIT * len(LIMITS))
    begin = gpu.totals().time_seconds
    while not profiling.finished:
        gpu.machine.set_power_limit_as_another_actor(0, profiling.limit_watts)
        gpu.step()
        if profiling.step_done(1):
            profiling.add_totals(gpu.totals())
    measured = [
        MeasuredLimit(each.power_limit_watts, each.energy_joules / each.epochs, each.time_seconds / each.epochs)
        for each in profiling.measurements(1.0)
    ]
    return selector.select(measured).power_limit_watts, gpu.totals().time_seconds - begin


def designed(gpu: HotGpu, selector: Selector, mode: Mode) -> float:
    """The limit that the sequential design chooses."""
    design = SequentialDesign(LIMITS, 1, selector, mode)
    while design.reason is None:
        design.add(gpu.window(design.limit_watts))
    return design.limit_watts


def compare_orders(seeds: int) -> None:
    """Print part 1."""
    print(f"{'leakage':>8} {'selector':11} {'settled':>7} {'one pass':24} {'Measured':24} {'Fitted':24} Run")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for leakage in (0.0, 1.0):
            true = [HotGpu(folder, leakage, seed=0).settled(limit) for limit in LIMITS]
            for selector in SELECTORS:
                chosen: tuple[list[float], ...] = ([], [], [], [])
                for seed in range(seeds):
                    gpus = [HotGpu(folder, leakage, seed) for _ in chosen]
                    chosen[0].append(selector.select(one_pass(gpus[0], LIMITS)).power_limit_watts)
                    chosen[1].append(designed(gpus[1], selector, "Measured"))
                    chosen[2].append(designed(gpus[2], selector, "Fitted"))
                    chosen[3].append(of_a_run_on(gpus[3], selector)[0])
                cells = [f"{' '.join(f'{limit:g}' for limit in limits):24}" for limits in chosen]
                right = selector.select(true).power_limit_watts
                print(f"{leakage:4.1f} W/K {type(selector).__name__:11} {right:7g} {' '.join(cells)}", flush=True)


def compare_intervals(seeds: int) -> None:
    """Print part 4."""
    print(f"{'leakage':>8} {'mode':9} {'runs':>5} {'contained %':>12} {'mean width %':>13} {'windows':>8}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for leakage in (0.0, 0.5, 1.0):
            true = [HotGpu(folder, leakage, seed=0).settled(limit) for limit in LIMITS]
            for mode in ("Measured", "Fitted"):
                contained, widths, windows = [], [], []
                for cold, selector, seed in itertools.product((False, True), (Energy(), Cost(0.5)), range(seeds)):
                    gpu = HotGpu(folder, leakage, seed, cold=cold)
                    design = SequentialDesign(LIMITS, 1, selector, mode)
                    while design.reason is None:
                        design.add(gpu.window(design.limit_watts))
                    windows.append(len(design.windows))
                    estimate = None if design.choice is None else design.choice.estimate
                    for place, each in enumerate(true if estimate else ()):
                        intervals = (
                            (estimate.energy_interval(place), each.energy_joules),
                            (estimate.time_interval(place), each.time_seconds),
                        )
                        contained += [low <= value <= high for (low, high), value in intervals]
                        widths += [high / low - 1 for (low, high), _ in intervals]
                print(
                    f"{leakage:4.1f} W/K {mode:9} {len(windows):5} {100 * statistics.fmean(contained):12.1f} "
                    f"{100 * statistics.fmean(widths):13.1f} {statistics.fmean(windows):8.1f}",
                    flush=True,
                )


def profiles() -> Iterator[list[MeasuredLimit]]:
    """The measured profiles of the traces with at least six limits."""
    for file in ("summary_power_a40.csv", "summary_power_v100.csv"):
        found: dict[tuple[str, ...], list[MeasuredLimit]] = {}
        with (DATA / "zeus-traces" / file).open() as stream:
            for row in csv.DictReader(stream):
                key = tuple(row[name] for name in ("dataset", "network", "batch_size", "optimizer"))
                seconds = float(row["time_per_epoch"])
                energy = seconds * float(row["average_power"])
                found.setdefault(key, []).append(MeasuredLimit(float(row["power_limit"]), energy, seconds))
        yield from (profile for profile in found.values() if len(profile) >= 6)


def replay(profile: Sequence[MeasuredLimit], selector: Selector, mode: Mode, seed: int) -> SequentialDesign:
    """The design on a profile, with noise."""
    noise = random.Random(seed)
    by_limit = {each.power_limit_watts: each for each in profile}
    design = SequentialDesign(tuple(by_limit), 1, selector, mode)
    start = Totals(0.0, 0.0)
    while design.reason is None:
        true = by_limit[design.limit_watts]
        samples = WINDOW_SECONDS / true.time_seconds
        seconds = WINDOW_SECONDS * math.exp(noise.gauss(0.0, WINDOW_NOISE))
        energy = true.energy_joules * samples * math.exp(noise.gauss(0.0, WINDOW_NOISE))
        end = Totals(start.energy_joules + energy, start.time_seconds + seconds)
        design.add(PowerWindow(true.power_limit_watts, start, end, energy, seconds, samples))
        start = end
    return design


def loss(selector: Selector, chosen: MeasuredLimit, profile: Sequence[MeasuredLimit]) -> float:
    """Relative loss of the selector's objective; for MaxSlowdown that of energy, against the right choice."""
    best = selector.select(profile)
    if isinstance(selector, Time):
        return chosen.time_seconds / best.time_seconds - 1
    if isinstance(selector, Cost):
        return selector.cost_joules(chosen, profile) / selector.cost_joules(best, profile) - 1
    return chosen.energy_joules / best.energy_joules - 1


class _OnePass:
    """Each limit once, from the highest down, as Zeus measures them (NSDI '23, section 4.2)."""

    def __init__(self, limits: Sequence[float]) -> None:
        self._limits = limits
        self._windows: list[PowerWindow] = []
        self._recorder = WindowRecorder(limits[0])

    @property
    def finished(self) -> bool:
        return len(self._windows) == len(self._limits)

    @property
    def limit_watts(self) -> float:
        return self._limits[min(len(self._windows), len(self._limits) - 1)]

    def step_done(self, samples: float) -> bool:
        return self._recorder.step_done(samples)

    def add_totals(self, totals: Totals) -> None:
        window = self._recorder.add_totals(totals)
        if window is not None:
            self._windows.append(window)
            self._recorder = WindowRecorder(self.limit_watts)

    def measurements(self, _samples_per_epoch: float) -> tuple[LimitMeasurement, ...]:
        return tuple(
            LimitMeasurement(each.power_limit_watts, each.energy_joules, each.time_seconds, each.samples)
            for each in self._windows
        )


def of_a_run(
    profile: Sequence[MeasuredLimit], selector: Selector, seed: int, *, window_noise: float, repeats: bool
) -> tuple[float, float]:
    """The limit that a run chooses, and the seconds of its windows."""
    noise = random.Random(seed)
    by_limit = {each.power_limit_watts: each for each in profile}
    limits = tuple(sorted(by_limit, reverse=True))
    max_windows = MAX_WINDOWS_PER_LIMIT * len(limits)
    profiling = SequentialDesign(limits, 1, selector, max_windows=max_windows) if repeats else _OnePass(limits)
    energy = seconds = 0.0
    step_noise = window_noise * math.sqrt(STEPS_OF_WINDOW)
    while not profiling.finished:
        true = by_limit[profiling.limit_watts]
        samples = WINDOW_SECONDS / STEPS_OF_WINDOW / by_limit[limits[0]].time_seconds
        energy += true.energy_joules * samples * math.exp(noise.gauss(0.0, step_noise))
        seconds += true.time_seconds * samples * math.exp(noise.gauss(0.0, step_noise))
        if profiling.step_done(samples):
            profiling.add_totals(Totals(energy, seconds))
    measured = [
        MeasuredLimit(each.power_limit_watts, each.energy_joules / each.epochs, each.time_seconds / each.epochs)
        for each in profiling.measurements(1.0)
    ]
    return selector.select(measured).power_limit_watts, seconds


def compare_runs(every: int) -> None:
    """Print part 3."""
    print(f"{'noise':>5} {'selector':12} {'Run':10} {'mean loss %':>11} {'largest %':>9} {'worse':>6} {'seconds':>8}")
    known = list(profiles())[::every]
    for noise, selector, repeats in itertools.product(RUN_NOISES, SELECTORS, (False, True)):
        losses, times, worse = [], [], 0
        for seed, profile in enumerate(known):
            limit, seconds = of_a_run(profile, selector, seed, window_noise=noise, repeats=repeats)
            chosen = next(each for each in profile if each.power_limit_watts == limit)
            losses.append(loss(selector, chosen, profile))
            times.append(seconds)
            worse += comparison(selector)(chosen, profile, Requirements().margin)
        print(
            f"{noise:5} {type(selector).__name__:12} {'sequential' if repeats else 'one pass':10} "
            f"{100 * statistics.fmean(losses):11.2f} {100 * max(losses):9.2f} {worse:6} "
            f"{statistics.median(times):8.0f}",
            flush=True,
        )


def compare_modes(every: int) -> None:
    """Print part 2."""
    known = list(profiles())[::every]
    print(f"{len(known)} profiles, {statistics.fmean(map(len, known)):.1f} limits on average")
    print(f"{'selector':12} {'mode':9} {'mean loss %':>11} {'windows':>8} {'limits':>7} {'worse':>6} {'beyond':>6}")
    for selector in SELECTORS:
        for mode in ("Measured", "Fitted"):
            losses, windows, limits, worse, beyond = [], [], [], 0, 0
            for seed, profile in enumerate(known):
                design = replay(profile, selector, mode, seed)
                chosen = next(each for each in profile if each.power_limit_watts == design.limit_watts)
                losses.append(loss(selector, chosen, profile))
                windows.append(len(design.windows))
                limits.append(len({window.power_limit_watts for window in design.windows}))
                worse += comparison(selector)(chosen, profile, design.requirements.margin)
                beyond += isinstance(selector, MaxSlowdown) and not selector.keeps_bound(chosen, profile)
            print(
                f"{type(selector).__name__:12} {mode:9} {100 * statistics.fmean(losses):11.2f} "
                f"{statistics.median(windows):8.0f} {statistics.fmean(limits):7.1f} {worse:6} {beyond:6}",
                flush=True,
            )


def main() -> None:
    """Print all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer seeds and profiles")
    quick = parser.parse_args().quick
    compare_orders(seeds=2 if quick else 5)
    compare_modes(every=6 if quick else 1)
    compare_runs(every=6 if quick else 1)
    compare_intervals(seeds=1 if quick else 4)


if __name__ == "__main__":
    main()
