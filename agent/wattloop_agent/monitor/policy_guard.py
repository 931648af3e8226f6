"""Holds callers to the guard rails of this node, before the power controller is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from wattloop.node_energy import Range
from wattloop_agent.monitor.callers import Caller
from wattloop_agent.monitor.meter import Meter
from wattloop_agent.monitor.policies.limits import Asked, Limits, PolicyLimits, out_of_range, refuse_closed
from wattloop_agent.request_error import RequestError


class Guard:
    """Says what a caller may ask for.

    Args:
        meter: Knows the GPUs' products and what they accept.
        limits: Gives the guard rails of now; it raises `RequestError` where they are not known.
    """

    def __init__(self, meter: Meter, limits: Callable[[], PolicyLimits]) -> None:
        self._meter = meter
        self._limits = limits

    async def admit(self, caller: Caller, gpus: Sequence[str], asked: Asked, value: float) -> dict[str, float]:
        """Refuse what a policy does not allow.

        Returns:
            The ends that the policies set, for the power controller to stay within when it looks for a step.

        Raises:
            RequestError: The caller may not ask, or not for this value on one of the GPUs, or its limits are unknown.
        """
        ends: dict[str, float] = {}
        for gpu, limits in [(gpu, await self._limits_of(caller, gpu)) for gpu in gpus]:
            refuse_closed(gpu, limits, caller.namespace)
            violation = limits.violation(asked, value)
            if violation is not None:
                raise out_of_range(gpu, asked, value, violation, await self._accepted(gpu, asked))
            least, most = limits.range(asked)
            if least > 0:
                ends["least"] = max(least, ends.get("least", least))
            if most < math.inf:
                ends["most"] = min(most, ends.get("most", most))
        return ends

    async def allowed(self, caller: Caller, gpu: str, asked: Asked, accepted: Range) -> Range | None:
        """What a caller may ask of a GPU that accepts this range; None: nothing."""
        try:
            limits = await self._limits_of(caller, gpu)
        except RequestError:
            return None
        return limits.narrowed(asked, accepted)

    async def _limits_of(self, caller: Caller, gpu: str) -> Limits:
        limits = self._limits()
        return limits.of(await self._meter.product(gpu), caller.namespace) if limits.bounds else Limits()

    async def _accepted(self, gpu: str, asked: Asked) -> Range | None:
        try:
            return await self._meter.accepted(gpu, asked)
        except RequestError:
            # The policy's word stands without the device's.
            return None
