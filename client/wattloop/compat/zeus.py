"""The energy windows and the power limit optimizer of Zeus: ``from wattloop.compat.zeus import ZeusMonitor``.

The interface is that of ``zeus.monitor`` and ``zeus.optimizer.power_limit`` 0.16 (https://ml.energy/zeus/reference/).
What differs is in docs/migrating-from-zeus.md.
"""

import importlib
from typing import Any

from wattloop.compat.zeus_windows import Measurement, WindowError, ZeusMonitor

_OPTIMIZER = "wattloop_research.training.zeus_power_limit"
# By module; the import of the last one imports Transformers.
_NAMES = {
    "Callback": _OPTIMIZER,
    "Energy": _OPTIMIZER,
    "GlobalPowerLimitOptimizer": _OPTIMIZER,
    "MaxSlowdownConstraint": _OPTIMIZER,
    "OptimumSelector": _OPTIMIZER,
    "PowerLimitMeasurement": _OPTIMIZER,
    "Time": _OPTIMIZER,
    "ZeusCost": _OPTIMIZER,
    "HFGlobalPowerLimitOptimizer": "wattloop_research.training.zeus_huggingface",
}

__all__ = ["Measurement", "WindowError", "ZeusMonitor", *_NAMES]  # noqa: PLE0604 - these are strings, too


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_NAMES[name]), name)
