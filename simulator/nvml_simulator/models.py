"""The GPU models that can be simulated, from the tables in src/models.c."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

from nvml_simulator.simulated_library import ModelDescription, load
from wattloop.errors import UsageError


@dataclass(frozen=True)
class Model:
    """A GPU model.

    Attributes:
        key: Key, such as ``A100``.
        name: Name by NVML, such as ``NVIDIA A100-SXM4-80GB``.
        memory_bytes: Memory of the device.
        power_limit_range_watts: Minimum and maximum power limit.
        default_power_limit_watts: Power limit after a restart.
        idle_watts: Power without work.
        waiting_watts: Power with a spinning process, as in blocking communication.
        has_energy_counter: Whether NVML reports its energy, as it does from Volta on.
        graphics_clocks_megahertz: Table of graphics clocks, descending.
        memory_clocks_megahertz: Table of memory clocks, descending.
        teraflops_per_second: Work per second at the highest clocks.
    """

    key: str
    name: str
    memory_bytes: int
    power_limit_range_watts: tuple[float, float]
    default_power_limit_watts: float
    idle_watts: float
    waiting_watts: float
    has_energy_counter: bool
    graphics_clocks_megahertz: tuple[int, ...]
    memory_clocks_megahertz: tuple[int, ...]
    teraflops_per_second: float


@cache
def models() -> tuple[Model, ...]:
    """Return all models, in the order of src/models.c."""
    found: list[Model] = []
    description = ModelDescription()
    while load().wattloopSimulatorModel(len(found), ctypes.byref(description)) == 0:
        found.append(_model(description))
    return tuple(found)


def model_named(key: str) -> Model:
    """Return the model with a key.

    Raises:
        UsageError: There is none; the message lists all keys.
    """
    for model in models():
        if model.key == key:
            return model
    raise UsageError(f"found GPU model {key!r}, expected one of {', '.join(model.key for model in models())}")


def busy_power_and_throughput(model: Model, graphics_megahertz: int, intensity: float) -> tuple[float, float]:
    """Return (watts, teraflops per second) at a clock by the power curve, without a power limit.

    Args:
        model: One of `models`.
        graphics_megahertz: A clock of its table.
        intensity: 0 to 1.

    Raises:
        UsageError: The clock is not in the table, or the intensity is not from 0 to 1.
    """
    watts, throughput = ctypes.c_uint(), ctypes.c_uint64()
    code = load().wattloopSimulatorCurve(
        models().index(model), graphics_megahertz, intensity, ctypes.byref(watts), ctypes.byref(throughput)
    )
    if code != 0:
        raise UsageError(
            f"found {graphics_megahertz} MHz at intensity {intensity}, expected a clock of the {model.key}'s table and "
            "an intensity from 0 to 1"
        )
    return watts.value / 1e3, throughput.value / 1e6


def _model(description: ModelDescription) -> Model:
    return Model(
        key=description.key.decode(),
        name=description.name.decode(),
        memory_bytes=description.memory_bytes,
        power_limit_range_watts=(description.power_min_mw / 1e3, description.power_max_mw / 1e3),
        default_power_limit_watts=description.power_default_mw / 1e3,
        idle_watts=description.power_idle_mw / 1e3,
        waiting_watts=description.power_waiting_mw / 1e3,
        has_energy_counter=bool(description.has_energy_counter),
        graphics_clocks_megahertz=tuple(description.graphics_clocks_mhz[: description.graphics_clock_count]),
        memory_clocks_megahertz=tuple(description.memory_clocks_mhz[: description.memory_clock_count]),
        teraflops_per_second=description.megaflops_per_second / 1e6,
    )
