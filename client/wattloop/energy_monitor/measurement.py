"""The result of a window."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from wattloop.energy.energy_timeline import difference
from wattloop.energy.gpu_reading import any_shared
from wattloop.energy_monitor.process_sampler import EnergyState, Moment, ProcessSampler


@dataclass(frozen=True)
class _Energies:
    gpus: dict[int, float]
    uncertainty: float
    packages: dict[int, float]
    drams: dict[int, float]
    reason: str
    integrated: tuple[int, ...] = ()
    shared: Mapping[int, bool | None] = field(default_factory=dict)


class RecordedWindow(NamedTuple):
    """What a measurement is computed from; the monitor is kept alive, since the sampler stops when none is left."""

    sampler: ProcessSampler
    gpus: Mapping[int, str]
    begin: Moment
    end: Moment
    waits: bool
    monitor: object


class Measurement:
    """Time and energy of one window.

    The energies are computed when one of them is first read. If that is soon after the window's end, the
    call waits for the next readings, at most 0.6 s. Read them outside of the code that is measured.

    Attributes:
        name: Name of the window.
        time_seconds: Its length.
    """

    def __init__(self, name: str, window: RecordedWindow) -> None:
        self.name = name
        self.time_seconds = window.end.seconds - window.begin.seconds
        # Until the energies are computed.
        self._window: RecordedWindow | None = window
        self._energies: _Energies | None = None

    @property
    def gpu_energy_joules(self) -> dict[int, float]:
        """Energy of each GPU, by CUDA's index; without GPUs that were not read at all."""
        return dict(self._computed().gpus)

    @property
    def total_energy_joules(self) -> float:
        """Energy of the GPUs together; NaN if none was read."""
        gpus = self._computed().gpus
        return math.fsum(gpus.values()) if gpus else math.nan

    @property
    def uncertainty_joules(self) -> float:
        """Standard deviation of the error of `total_energy_joules`; NaN if no GPU was read."""
        return self._computed().uncertainty

    @property
    def integrated_gpus(self) -> tuple[int, ...]:
        """CUDA's indices of the GPUs without an energy counter: their energy is the integral of their power."""
        return self._computed().integrated

    @property
    def shared(self) -> bool | None:
        """Whether processes of others used a GPU, too, so that the energy is an upper bound; None if not known.

        Others are looked for once a second. A window that they miss by less than that may count as shared.
        """
        return any_shared(self._computed().shared.values())

    @property
    def shared_gpus(self) -> tuple[int, ...]:
        """CUDA's indices of the GPUs that processes of others used, too."""
        return tuple(index for index, shared in self._computed().shared.items() if shared)

    @property
    def cpu_energy_joules(self) -> float | None:
        """Energy of the processor packages of the machine, of all its programs; None if not measured."""
        packages = self._computed().packages
        return math.fsum(packages.values()) if packages else None

    @property
    def dram_energy_joules(self) -> float | None:
        """Energy of the memory of the machine, of all its programs; None if not measured."""
        drams = self._computed().drams
        return math.fsum(drams.values()) if drams else None

    @property
    def cpu_energy_joules_by_package(self) -> dict[int, float]:
        """Energy of each processor package; empty if not measured."""
        return dict(self._computed().packages)

    @property
    def dram_energy_joules_by_package(self) -> dict[int, float]:
        """Energy of the memory of each processor package; empty if not measured."""
        return dict(self._computed().drams)

    @property
    def complete(self) -> bool:
        """Whether readings of all GPUs cover the window."""
        return not self._computed().reason

    @property
    def reason(self) -> str:
        """Why the measurement is incomplete; empty if it is complete."""
        return self._computed().reason

    def __repr__(self) -> str:
        energies = self._computed()
        shown = f"Measurement(name={self.name!r}, time_seconds={self.time_seconds:.6g}"
        if energies.gpus:
            shown += f", total_energy_joules={self.total_energy_joules:.6g}"
            shown += f", uncertainty_joules={energies.uncertainty:.2g}"
        if energies.integrated:
            shown += f", integrated_gpus={energies.integrated}"
        if self.shared_gpus:
            shown += f", shared_gpus={self.shared_gpus}"
        return f"{shown}, complete={not energies.reason}" + (
            f", reason={energies.reason!r})" if energies.reason else ")"
        )

    def __getstate__(self) -> dict[str, object]:
        """The values; another process has no readings."""
        return {"name": self.name, "time_seconds": self.time_seconds, "_window": None, "_energies": self._computed()}

    def _computed(self) -> _Energies:
        window = self._window
        if window is not None:
            self._energies = _computed(window)
            self._window = None
        assert self._energies is not None, "it is computed before the window is dropped"
        return self._energies


def _computed(window: RecordedWindow) -> _Energies:
    sampler = window.sampler
    if sampler.problem:
        return _Energies({}, math.nan, {}, {}, sampler.problem)
    if window.waits:
        sampler.wait_for_readings(window.end, list(window.gpus.values()))
    begin, end = sampler.energy_until(window.begin), sampler.energy_until(window.end)
    joules, squares, reasons, integrated = {}, 0.0, [], []
    shared = {index: sampler.is_shared(uuid, window.begin, window.end) for index, uuid in window.gpus.items()}
    for index, uuid in window.gpus.items():
        first, last = begin.gpus.get(uuid), end.gpus.get(uuid)
        if first is None or last is None:
            reasons.append(f"GPU {uuid} has not been read")
            continue
        energy = difference(first, last)
        joules[index] = energy.joules
        squares += energy.deviation_joules**2
        if energy.integrated:
            integrated.append(index)
        if energy.missing:
            reasons.append(f"GPU {uuid}: {energy.missing}")
    packages, drams = _processors(begin, end)
    reason = "; ".join(reasons) if window.gpus else "this process has no GPU"
    error = math.sqrt(squares) if joules else math.nan
    return _Energies(joules, error, packages, drams, reason, tuple(integrated), shared)


def _processors(begin: EnergyState, end: EnergyState) -> tuple[dict[int, float], dict[int, float]]:
    """The energy of each package and of its memory, by the package's number."""
    packages: dict[int, float] = {}
    drams: dict[int, float] = {}
    for zone, joules in end.processors.items():
        before = begin.processors.get(zone)
        package, _, part = zone.partition("/")
        number = package.removeprefix("package-")
        if joules is None or before is None or not number.isdecimal():
            continue
        if not part:
            packages[int(number)] = joules - before
        elif part == "dram":
            drams[int(number)] = joules - before
    return packages, drams
