"""Wattloop's client: the library for training scripts, and the base of the other packages.

It uses only the standard library, so that it adds no dependency to a training image.

Example:
    >>> from wattloop import Run
    >>> with Run(batch_size=64, max_epochs=1) as run:  # outside Wattloop: these defaults
    ...     for epoch in run.epochs():
    ...         run.report(metric=0.9)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wattloop.energy_monitor import EnergyMonitor, Measurement
    from wattloop.run.power_limit_optimizer import PowerLimitOptimizer
    from wattloop.run.training_run import Run

__all__ = ["EnergyMonitor", "Measurement", "PowerLimitOptimizer", "Run"]

_MODULES = {
    "EnergyMonitor": "wattloop.energy_monitor",
    "Measurement": "wattloop.energy_monitor",
    "PowerLimitOptimizer": "wattloop.run.power_limit_optimizer",
    "Run": "wattloop.run.training_run",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    # Imported on first use: other packages, above all the privileged power controller, need no HTTP
    # client.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
