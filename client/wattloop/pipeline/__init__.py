"""Pipeline-parallel training under a frequency plan: instructions, their clocks, and their measurement.

See `wattloop.pipeline.pipeline_rank.Pipeline` and docs/pipeline.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wattloop.pipeline.instruction import Instruction
    from wattloop.pipeline.local_profile import ClockProfile
    from wattloop.pipeline.pipeline_rank import Pipeline
    from wattloop.pipeline.plan_source import PlansCompleted, RankPlan

__all__ = ["ClockProfile", "Instruction", "Pipeline", "PlansCompleted", "RankPlan"]

_MODULES = {
    "RankPlan": "wattloop.pipeline.plan_source",
    "Instruction": "wattloop.pipeline.instruction",
    "Pipeline": "wattloop.pipeline.pipeline_rank",
    "PlansCompleted": "wattloop.pipeline.plan_source",
    "ClockProfile": "wattloop.pipeline.local_profile",
}


def __getattr__(name: str) -> object:
    # Imported on first use: the operator imports the messages alone.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
