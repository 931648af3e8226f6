"""Pipeline schedules: in which order a stage executes its operations, a file a schedule."""

from __future__ import annotations

from collections.abc import Mapping

from wattloop_planner.frequency.schedules.early_recomputation import EarlyRecomputation
from wattloop_planner.frequency.schedules.gpipe import GPipe
from wattloop_planner.frequency.schedules.interleaved import Interleaved
from wattloop_planner.frequency.schedules.one_forward_one_backward import OneForwardOneBackward
from wattloop_planner.frequency.schedules.schedule import (
    BACKWARD,
    FORWARD,
    FORWARD_BACKWARD,
    RECOMPUTATION,
    Schedule,
    StageOrder,
)

SCHEDULES: Mapping[str, type[Schedule]] = {
    "1f1b": OneForwardOneBackward,
    "early-recompute-1f1b": EarlyRecomputation,
    "gpipe": GPipe,
    "interleaved": Interleaved,
}

__all__ = [
    "BACKWARD",
    "FORWARD",
    "FORWARD_BACKWARD",
    "RECOMPUTATION",
    "SCHEDULES",
    "EarlyRecomputation",
    "GPipe",
    "Interleaved",
    "OneForwardOneBackward",
    "Schedule",
    "StageOrder",
]
