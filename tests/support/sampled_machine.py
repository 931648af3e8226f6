"""Simulated GPUs on the virtual clock, sampled as a monitor's thread would, and their exact energy."""

import itertools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import nvml_simulator
from nvml_simulator import Machine, model_named
from wattloop.energy.gpu_reading import GpuReading
from wattloop.energy_monitor.process_sampler import ProcessSampler
from wattloop.energy_monitor.readings import INTERVAL_SECONDS, Readings
from wattloop.gpus.nvml import NvmlError, Session

CALL_SECONDS = 0.0035
# A part of a load: its length in seconds, and its intensity; None: idle.
Load = Iterator[tuple[float, float | None]]


def steady(intensity: float = 0.5) -> Load:
    """The same power all the time."""
    return itertools.repeat((1.0, intensity))


def square_wave(half_seconds: float, intensity: float = 0.6) -> Load:
    """Busy and idle in turns."""
    return itertools.cycle([(half_seconds, intensity), (half_seconds, None)])


def ramp(seconds: float = 4.0) -> Load:
    """Power that rises slowly, and falls at once."""
    return itertools.cycle([(seconds / 100, 0.05 + 0.6 * part / 100) for part in range(100)])


def random_steps(rng: random.Random, mean_seconds: float) -> Load:
    """Changes of power at random moments."""
    while True:
        yield rng.expovariate(1 / mean_seconds) + 1e-4, rng.uniform(0.0, 0.7)


class ScriptedSource:
    """A source whose readings the test adds to the sampler."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = uuids

    def open(self) -> Sequence[str]:
        return self._uuids

    def read(self, uuids: Sequence[str]) -> Readings:
        raise NotImplementedError

    def close(self) -> None:
        pass


class SampledMachine:
    """A machine whose virtual time this object advances, with a sampler of its GPUs.

    Args:
        gpus: Number of GPUs; they work together.
        seed: Of the phase of the counters, and of the lengths of calls.
    """

    def __init__(self, path: Path, gpus: int = 1, seed: int = 1, model: str = "H200") -> None:
        self._stack = ExitStack()
        self._stack.callback(_set_state, os.environ.get(nvml_simulator.STATE_VARIABLE))
        nvml_simulator.load()
        nvml_simulator.create(path, model=model, count=gpus, clock="virtual", permission="anyone", seed=seed)
        self.machine = self._stack.enter_context(Machine(path))
        self._rng = random.Random(seed)
        self._speed = model_named(model).teraflops_per_second
        with self.session(path) as nvml:
            self.uuids = [gpu.uuid for gpu in nvml.gpus()]
            self._gpus = self._stack.enter_context(self.session(path)).gpus()
        self.sampler = ProcessSampler(lambda: ScriptedSource(self.uuids), self.now)
        self.sampler.open()
        self._due = 0.0
        self._part: tuple[float, float | None] = (0.0, None)
        self.sampling = True

    def session(self, path: Path) -> Session:
        """NVML on this machine."""
        _set_state(str(path))
        return Session()

    def close(self) -> None:
        # A restart of the driver has closed NVML.
        with suppress(NvmlError):
            self._stack.close()

    def now(self) -> float:
        return self.machine.clock_seconds()

    def joules(self, gpu: int = 0) -> float:
        """The exact energy so far."""
        return self.machine.describe().gpus[gpu].energy_microjoules / 1e6

    def run(self, load: Load, seconds: float) -> None:
        """Work for so long, sampled in between."""
        end = self.now() + seconds
        while (left := end - self.now()) > 1e-6:
            length, intensity = self._part
            if length <= 1e-6:
                self._part = next(load)
                continue
            before = self.now()
            due = self._due - before if self.sampling else left
            self._advance(min(length, left, max(due, 0.0)), intensity)
            self._part = (length - (self.now() - before), intensity)
            if self.sampling and self.now() >= self._due - 1e-6:
                self._sample(intensity)

    def _advance(self, seconds: float, intensity: float | None) -> None:
        gpus = list(range(len(self._gpus)))
        if intensity is None:
            self.machine.idle(gpus, seconds)
        elif seconds > 1e-9:
            self.machine.occupy(gpus, seconds * self._speed, intensity)

    def _sample(self, intensity: float | None) -> None:
        readings = []
        for gpu in self._gpus:
            begin = self.now()
            duration = CALL_SECONDS * self._rng.uniform(0.5, 1.5) / len(self._gpus)
            self._advance(duration / 2, intensity)
            counter = gpu.energy_millijoules()
            self._advance(duration / 2, intensity)
            readings.append(GpuReading(gpu.uuid, begin, self.now(), counter, gpu.instant_power_watts()))
        self.sampler.add(Readings(readings))
        self._due = max(self._due + INTERVAL_SECONDS * self._rng.uniform(0.98, 1.02), self.now())


def _set_state(path: str | None) -> None:
    """Name the machine that later sessions of NVML have."""
    if path is None:
        os.environ.pop(nvml_simulator.STATE_VARIABLE, None)
    else:
        os.environ[nvml_simulator.STATE_VARIABLE] = path


def loads(rng: random.Random) -> dict[str, Callable[[], Load]]:
    """Loads by name."""
    return {
        "steady": steady,
        "idle": lambda: itertools.repeat((1.0, None)),
        "square wave of 14 ms": lambda: square_wave(0.0073),
        "square wave of 266 ms": lambda: square_wave(0.133),
        "square wave of 2 s": lambda: square_wave(1.003),
        "ramp": ramp,
        "random steps of 20 ms": lambda: random_steps(rng, 0.02),
        "random steps of 200 ms": lambda: random_steps(rng, 0.2),
    }
