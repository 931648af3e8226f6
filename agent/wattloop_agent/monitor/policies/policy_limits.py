"""The policies in force for a GPU and a namespace, as pure functions of the node's policies.

A policy applies to the products that it names, whichever pod uses them. Its namespaces say whose
pods may set limits, its ranges which limits. Where several apply to a GPU, a request must be within
all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from wattloop.wire.node_energy import MAX_CLOCK_MEGAHERTZ, GpuBounds, Range
from wattloop.wire.training_messages import MAX_LIMIT_WATTS
from wattloop_agent.gpu_setting import GpuSetting

# Number of cached (product, namespace) pairs; a node has few products and, at a time, few
# namespaces.
CACHE_SIZE = 256


@dataclass(frozen=True)
class Limits:
    """The policies of one product's GPUs for the pods of one namespace.

    Attributes:
        bounds: All that apply.
        closed_by: Those that do not admit the namespace.
    """

    bounds: tuple[GpuBounds, ...] = ()
    closed_by: tuple[GpuBounds, ...] = ()

    def range(self, setting: GpuSetting) -> Range:
        """The range that all of them allow, both ends included.

        No value is allowed if the minimum is above the maximum.
        """
        ranges = [bounds for each in self.bounds if (bounds := _range(each, setting)) is not None]
        return max((low for low, _ in ranges), default=0.0), min((high for _, high in ranges), default=math.inf)

    def narrowed(self, setting: GpuSetting, device: Range) -> Range | None:
        """The allowed part of the range that a device accepts; None: nothing."""
        minimum, maximum = self.range(setting)
        minimum, maximum = max(minimum, device[0]), min(maximum, device[1])
        return None if self.closed_by or minimum > maximum else (minimum, maximum)

    def violation(self, setting: GpuSetting, value: float) -> str | None:
        """The policies that a value violates, with their ranges, in words; None: none."""
        violated = [
            f"GPUPowerPolicy {each.policy} allows {in_words(setting, bounds)}"
            for each in self.bounds
            if (bounds := _range(each, setting)) is not None and not bounds[0] <= value <= bounds[1]
        ]
        return " and ".join(violated) or None


class PolicyLimits:
    """The policies of this node, by product and namespace.

    Args:
        bounds: As received from the operator.
    """

    def __init__(self, bounds: Iterable[GpuBounds] = ()) -> None:
        self.bounds = tuple(bounds)
        self._cache: dict[tuple[str, str | None], Limits] = {}

    def of(self, product: str, namespace: str | None) -> Limits:
        """The limits of a GPU of this product for a pod of this namespace (None: no pod)."""
        key = (product, namespace)
        limits = self._cache.get(key)
        if limits is None:
            applying = tuple(each for each in self.bounds if each.products is None or product in each.products)
            limits = Limits(
                applying,
                tuple(each for each in applying if each.namespaces is not None and namespace not in each.namespaces),
            )
            if len(self._cache) >= CACHE_SIZE:
                self._cache.clear()
            self._cache[key] = limits
        return limits


def in_words(setting: GpuSetting, bounds: Range) -> str:
    """A range of a setting in words.

    Example:
        >>> in_words(GpuSetting.POWER_LIMIT, (100, 300)), in_words(GpuSetting.POWER_LIMIT, (0, 300))
        ('100 to 300 watts', 'at most 300 watts')
    """
    minimum, maximum = bounds
    if minimum <= 0:
        return f"at most {maximum:g} {setting.unit}"
    if maximum >= (MAX_LIMIT_WATTS if setting is GpuSetting.POWER_LIMIT else MAX_CLOCK_MEGAHERTZ):
        return f"at least {minimum:g} {setting.unit}"
    return f"{minimum:g} to {maximum:g} {setting.unit}"


def _range(bounds: GpuBounds, setting: GpuSetting) -> Range | None:
    found: Range | None = getattr(bounds, f"{setting}_{setting.unit}")
    return found
