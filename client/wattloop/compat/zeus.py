"""The energy windows and the power limit optimizer of Zeus: ``from wattloop.compat.zeus import ZeusMonitor``.

The interface is that of ``zeus.monitor`` and ``zeus.optimizer.power_limit`` 0.16 (https://ml.energy/zeus/reference/).
What differs is in docs/migrating-from-zeus.md.
"""

from typing import TYPE_CHECKING

from wattloop.compat.zeus_power_limit import (
    Callback,
    Energy,
    GlobalPowerLimitOptimizer,
    MaxSlowdownConstraint,
    OptimumSelector,
    PowerLimitMeasurement,
    Time,
    ZeusCost,
)
from wattloop.compat.zeus_windows import Measurement, WindowError, ZeusMonitor

if TYPE_CHECKING:
    from wattloop.compat.zeus_huggingface import HFGlobalPowerLimitOptimizer

__all__ = [
    "Callback",
    "Energy",
    "GlobalPowerLimitOptimizer",
    "HFGlobalPowerLimitOptimizer",
    "MaxSlowdownConstraint",
    "Measurement",
    "OptimumSelector",
    "PowerLimitMeasurement",
    "Time",
    "WindowError",
    "ZeusCost",
    "ZeusMonitor",
]


def __getattr__(name: str) -> object:
    """`HFGlobalPowerLimitOptimizer`, whose import imports Transformers."""
    if name == "HFGlobalPowerLimitOptimizer":
        from wattloop.compat import zeus_huggingface  # noqa: PLC0415

        return zeus_huggingface.HFGlobalPowerLimitOptimizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
