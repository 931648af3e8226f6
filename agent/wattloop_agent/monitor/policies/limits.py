"""Which guard rails hold for whom: pure functions of the GPUPowerPolicy objects that hold on this node.

A policy holds for the products that it names, of every pod: its namespaces say whose pods may ask, its ranges for what.
Where several hold for a GPU, a request must be within all of them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass

from wattloop.messages import MAX_LIMIT_WATTS
from wattloop.node_energy import MAX_CLOCK_MEGAHERTZ, GpuBounds, Range
from wattloop_agent.request_error import Reason, RequestError

# So many (product, namespace) are remembered; a node has few products and, at a time, few namespaces.
REMEMBERED_LIMIT = 256


class Asked(enum.Enum):
    """What may be asked for: the field of `GpuBounds`, words, unit, and how that field writes an open upper end."""

    POWER_LIMIT = ("power_limit_watts", "power limit", "watts", MAX_LIMIT_WATTS)
    GRAPHICS_CLOCK = ("graphics_clock_megahertz", "graphics clock", "megahertz", MAX_CLOCK_MEGAHERTZ)
    MEMORY_CLOCK = ("memory_clock_megahertz", "memory clock", "megahertz", MAX_CLOCK_MEGAHERTZ)

    def __init__(self, field: str, words: str, unit: str, largest: float) -> None:
        self.field = field
        self.words = words
        self.unit = unit
        self.largest = largest

    def told(self, found: Range) -> str:
        """A range in words.

        Example:
            >>> Asked.POWER_LIMIT.told((100, 300)), Asked.POWER_LIMIT.told((0, 300))
            ('100 to 300 watts', 'at most 300 watts')
        """
        least, most = found
        if least <= 0:
            return f"at most {most:g} {self.unit}"
        return f"at least {least:g} {self.unit}" if most >= self.largest else f"{least:g} to {most:g} {self.unit}"


@dataclass(frozen=True)
class Limits:
    """The guard rails of one product's GPUs for the pods of one namespace.

    Attributes:
        bounds: All that hold.
        closed_by: Those that do not let the namespace ask.
    """

    bounds: tuple[GpuBounds, ...] = ()
    closed_by: tuple[GpuBounds, ...] = ()

    def range(self, asked: Asked) -> Range:
        """What all of them allow, both ends included; nothing where the first is above the second."""
        ranges = [found for each in self.bounds if (found := _range(each, asked)) is not None]
        return max((least for least, _ in ranges), default=0.0), min((most for _, most in ranges), default=math.inf)

    def narrowed(self, asked: Asked, device: Range) -> Range | None:
        """What may be asked of a device that accepts this range; None: nothing."""
        least, most = self.range(asked)
        least, most = max(least, device[0]), min(most, device[1])
        return None if self.closed_by or least > most else (least, most)

    def violation(self, asked: Asked, value: float) -> str | None:
        """Which policies a value is outside of, with their ranges, in words; None: it is within all."""
        told = [
            f"GPUPowerPolicy {each.policy} allows {asked.told(found)}"
            for each in self.bounds
            if (found := _range(each, asked)) is not None and not found[0] <= value <= found[1]
        ]
        return " and ".join(told) or None


class PolicyLimits:
    """The bounds of this node, by product and namespace.

    Args:
        bounds: As the operator told them.
    """

    def __init__(self, bounds: Iterable[GpuBounds] = ()) -> None:
        self.bounds = tuple(bounds)
        self._found: dict[tuple[str, str | None], Limits] = {}

    def of(self, product: str, namespace: str | None) -> Limits:
        """The rails of a GPU of this product for a pod of this namespace (None: no pod, which no namespace lets in)."""
        key = (product, namespace)
        limits = self._found.get(key)
        if limits is None:
            holding = tuple(each for each in self.bounds if each.products is None or product in each.products)
            limits = Limits(
                holding,
                tuple(each for each in holding if each.namespaces is not None and namespace not in each.namespaces),
            )
            if len(self._found) >= REMEMBERED_LIMIT:
                self._found.clear()
            self._found[key] = limits
        return limits


def refuse_closed(gpu: str, limits: Limits, namespace: str | None) -> None:
    """Refuse a namespace that may not ask anything of a GPU.

    Raises:
        RequestError: `Reason.NOT_PERMITTED`, naming the policy and who may.
    """
    for bounds in limits.closed_by:
        whose = f"pods of namespace {namespace}" if namespace else "what is no pod"
        raise RequestError(
            Reason.NOT_PERMITTED,
            f"GPU {gpu}: GPUPowerPolicy {bounds.policy} lets pods of {', '.join(bounds.namespaces or ())} ask for "
            f"limits and clocks, not {whose}; an administrator can add it to the policy's namespaces",
        )


def out_of_range(gpu: str, asked: Asked, value: float, violation: str, device: Range | None) -> RequestError:
    """The refusal of a value that a policy does not allow, with the policy's range and the device's."""
    accepts = "did not say what it accepts" if device is None else f"accepts {asked.told(device)}"
    return RequestError(
        Reason.OUT_OF_RANGE,
        f"GPU {gpu}: a {asked.words} of {value:g} {asked.unit} is out of range: {violation}, the device {accepts}",
    )


def _range(bounds: GpuBounds, asked: Asked) -> Range | None:
    found: Range | None = getattr(bounds, asked.field)
    return found
