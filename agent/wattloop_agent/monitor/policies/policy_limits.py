"""The policies in force for a GPU and a namespace, as pure functions of the node's policies.

A policy applies to the products that it names, whichever pod uses them. Its namespaces say whose
pods may set limits, its ranges which limits. Where several apply to a GPU, a request must be within
all of them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass

from wattloop.wire.node_energy import MAX_CLOCK_MEGAHERTZ, GpuBounds, Range
from wattloop.wire.training_messages import MAX_LIMIT_WATTS
from wattloop_agent.request_error import Reason, RequestError

# Number of cached (product, namespace) pairs; a node has few products and, at a time, few
# namespaces.
CACHE_SIZE = 256


class LimitedSetting(enum.Enum):
    """A setting that policies bound: field of `GpuBounds`, label, unit, largest upper bound."""

    POWER_LIMIT = ("power_limit_watts", "power limit", "watts", MAX_LIMIT_WATTS)
    GRAPHICS_CLOCK = ("graphics_clock_megahertz", "graphics clock", "megahertz", MAX_CLOCK_MEGAHERTZ)
    MEMORY_CLOCK = ("memory_clock_megahertz", "memory clock", "megahertz", MAX_CLOCK_MEGAHERTZ)

    def __init__(self, field: str, label: str, unit: str, no_maximum: float) -> None:
        self.field = field
        self.label = label
        self.unit = unit
        self.no_maximum = no_maximum

    def describe(self, bounds: Range) -> str:
        """A range in words.

        Example:
            >>> LimitedSetting.POWER_LIMIT.describe((100, 300)), LimitedSetting.POWER_LIMIT.describe((0, 300))
            ('100 to 300 watts', 'at most 300 watts')
        """
        minimum, maximum = bounds
        if minimum <= 0:
            return f"at most {maximum:g} {self.unit}"
        if maximum >= self.no_maximum:
            return f"at least {minimum:g} {self.unit}"
        return f"{minimum:g} to {maximum:g} {self.unit}"


@dataclass(frozen=True)
class Limits:
    """The policies of one product's GPUs for the pods of one namespace.

    Attributes:
        bounds: All that apply.
        closed_by: Those that do not admit the namespace.
    """

    bounds: tuple[GpuBounds, ...] = ()
    closed_by: tuple[GpuBounds, ...] = ()

    def range(self, setting: LimitedSetting) -> Range:
        """The range that all of them allow, both ends included.

        No value is allowed if the minimum is above the maximum.
        """
        ranges = [bounds for each in self.bounds if (bounds := _range(each, setting)) is not None]
        return max((low for low, _ in ranges), default=0.0), min((high for _, high in ranges), default=math.inf)

    def narrowed(self, setting: LimitedSetting, device: Range) -> Range | None:
        """The allowed part of the range that a device accepts; None: nothing."""
        minimum, maximum = self.range(setting)
        minimum, maximum = max(minimum, device[0]), min(maximum, device[1])
        return None if self.closed_by or minimum > maximum else (minimum, maximum)

    def violation(self, setting: LimitedSetting, value: float) -> str | None:
        """The policies that a value violates, with their ranges, in words; None: none."""
        violated = [
            f"GPUPowerPolicy {each.policy} allows {setting.describe(bounds)}"
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


def refuse_closed(gpu: str, limits: Limits, namespace: str | None) -> None:
    """Refuse a namespace that may not set a GPU.

    Raises:
        RequestError: `Reason.NOT_PERMITTED`, with the policy and the namespaces that it admits.
    """
    for bounds in limits.closed_by:
        refused = f"pods of namespace {namespace}" if namespace else "processes outside of pods"
        raise RequestError(
            Reason.NOT_PERMITTED,
            f"GPU {gpu}: GPUPowerPolicy {bounds.policy} lets pods of {', '.join(bounds.namespaces or ())} ask for "
            f"limits and clocks, not {refused}; an administrator can add it to the policy's namespaces",
        )


def out_of_range(gpu: str, setting: LimitedSetting, value: float, violation: str, device: Range | None) -> RequestError:
    """The error for a value that violates a policy, with the policy's range and the device's."""
    accepts = "does not report what it accepts" if device is None else f"accepts {setting.describe(device)}"
    return RequestError(
        Reason.OUT_OF_RANGE,
        f"GPU {gpu}: a {setting.label} of {value:g} {setting.unit} is out of range: {violation}, the device {accepts}",
    )


def _range(bounds: GpuBounds, setting: LimitedSetting) -> Range | None:
    found: Range | None = getattr(bounds, setting.field)
    return found
