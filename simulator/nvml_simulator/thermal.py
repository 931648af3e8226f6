"""The thermal model of simulated GPUs: their temperature, and the power that leakage adds with it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from wattloop.errors import UsageError

MAX_VALUE = 1e5
MAX_CELSIUS = 150.0


@dataclass(frozen=True)
class ThermalModel:
    """Temperature of a GPU that follows its power, and leakage that rises with the temperature.

    The temperature approaches ambient + resistance · power with one time constant. The power curve
    holds at 50 °C; each kelvin above adds the leakage, each kelvin below subtracts it. A GPU below
    its power limit then draws more power when it is hot, and one at its limit runs slower. The
    defaults are those of a large air-cooled GPU: about 40 K at 400 W, within minutes, and 5 % of the
    power.

    Attributes:
        ambient_celsius: Temperature of the air, 0 to 150.
        kelvin_per_watt: Thermal resistance.
        time_constant_seconds: Time to 63 % of a change of the temperature, at least 1.
        leakage_watts_per_kelvin: Power per kelvin.
        start_celsius: Temperature at the moment at which the model is set; None: ambient.

    Raises:
        UsageError: A value is out of range.
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
