"""The GPU models that can be simulated, from the tables in src/models.c, and the thermal model of a GPU."""

import ctypes
from dataclasses import dataclass, fields
from functools import cache

from nvml_simulator.simulated_library import ModelDescription, load
from wattloop.errors import UsageError

MAX_VALUE = 1e5
MAX_CELSIUS = 150.0


@dataclass(frozen=True)
class Model:
    """A GPU model.

    Attributes:
        key: Key, such as ``A100``; `name` is that of NVML, such as ``NVIDIA A100-SXM4-80GB``.
        power_limit_range_watts: Minimum and maximum power limit; the default is that after a restart.
        idle_watts: Power without work.
        waiting_watts: Power with a spinning process, as in blocking communication.
        has_energy_counter: Whether NVML reports its energy, as it does from Volta on.
        graphics_clocks_megahertz: Table of graphics clocks, descending, like that of the memory clocks.
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
    """Return the model with a key; without one, the error lists all keys."""
    for model in models():
        if model.key == key:
            return model
    raise UsageError(f"found GPU model {key!r}, expected one of {', '.join(model.key for model in models())}")


def busy_power_and_throughput(model: Model, graphics_megahertz: int, intensity: float) -> tuple[float, float]:
    """Return (watts, teraflops per second) at a clock of the model by the power curve, without a power limit."""
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


@dataclass(frozen=True)
class ThermalModel:
    """Temperature of a GPU that follows its power, and leakage that rises with the temperature.

    The temperature approaches ambient + resistance · power with one time constant. The power curve holds at 50 °C; each
    kelvin above adds the leakage, each kelvin below subtracts it. A GPU below its power limit then draws more power
    when it is hot, and one at its limit runs slower. The defaults are those of a large air-cooled GPU: about 40 K at
    400 W, within minutes, and 5 % of the power.

    Attributes:
        ambient_celsius: Temperature of the air, 0 to 150.
        kelvin_per_watt: Thermal resistance.
        time_constant_seconds: Time to 63 % of a change of the temperature, at least 1.
        leakage_watts_per_kelvin: Power per kelvin.
        start_celsius: Temperature at the moment at which the model is set; None: ambient.

    """

    ambient_celsius: float = 30.0
    kelvin_per_watt: float = 0.1
    time_constant_seconds: float = 60.0
    leakage_watts_per_kelvin: float = 0.5
    start_celsius: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 1.0 if field.name == "time_constant_seconds" else 0.0
            most = MAX_CELSIUS if field.name.endswith("celsius") else MAX_VALUE
            if value is not None and not least <= value <= most:
                raise UsageError(f"found {field.name} {value}, expected {least:g} to {most:g}")
