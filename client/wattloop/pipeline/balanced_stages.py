"""Settings that balance the stages of a pipeline: the rule of Zeus for each stage alone, as Perseus' server has it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

Stage = TypeVar("Stage", bound=Hashable)


def balanced_stages(forward_seconds: Mapping[Stage, Mapping[int, float]]) -> dict[int, dict[Stage, int]]:
    """The settings of all stages for each one of the heaviest stage, from the highest down.

    The heaviest stage has the longest forward at the highest setting. Another stage has the setting whose forward
    takes nearest to as long; of two, the lower one. It is not above that of the heaviest stage, and does not rise
    while that falls.

    Args:
        forward_seconds: Time of a forward by setting, clock or power limit, of each stage.

    Example:
        >>> light = {300: 0.10, 250: 0.11, 200: 0.14}
        >>> heavy = {300: 0.12, 250: 0.13, 200: 0.17}
        >>> balanced_stages({"light": light, "heavy": heavy})
        {300: {'light': 250, 'heavy': 300}, 250: {'light': 200, 'heavy': 250}, 200: {'light': 200, 'heavy': 200}}
    """
    heaviest = max(forward_seconds, key=lambda stage: forward_seconds[stage][max(forward_seconds[stage])])
    of_heaviest = forward_seconds[heaviest]
    found: dict[int, dict[Stage, int]] = {}
    highest = {stage: max(times) for stage, times in forward_seconds.items()}
    for setting in sorted(of_heaviest, reverse=True):
        for stage, times in forward_seconds.items():
            highest[stage] = _nearest(times, of_heaviest[setting], min(highest[stage], setting))
        highest[heaviest] = setting
        found[setting] = dict(highest)
    return found


def _nearest(times: Mapping[int, float], wanted_seconds: float, highest: int) -> int:
    """The setting of the nearest time among those up to the highest one; the lowest of all if there is none."""
    allowed = [setting for setting in sorted(times) if setting <= highest] or [min(times)]
    return min(allowed, key=lambda setting: round(abs(times[setting] - wanted_seconds), 9))
