"""Checks callers' requests against the GPUPowerPolicies of this node."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from wattloop.wire.node_energy import Range
from wattloop_agent.monitor.identity import SocketCaller
from wattloop_agent.monitor.policies.policy_limits import (
    LimitedSetting,
    Limits,
    PolicyLimits,
    out_of_range,
    refuse_closed,
)
from wattloop_agent.request_error import RequestError


class GpuProperties(Protocol):
    """What a policy needs to know of a GPU; `Meter` implements it."""

    async def product(self, uuid: str) -> str:
        """A GPU's model.

        Raises:
            RequestError: The driver does not report it.
        """

    async def accepted(self, uuid: str, setting: LimitedSetting) -> Range:
        """The lowest and the highest value that a GPU accepts.

        Raises:
            RequestError: The driver does not report it.
        """


class PolicyAdmission:
    """Admits or refuses requests.

    Args:
        gpus: The GPUs' models and ranges.
        limits: Gives the policies in force; it raises `RequestError` where they are unknown.
    """

    def __init__(self, gpus: GpuProperties, limits: Callable[[], PolicyLimits]) -> None:
        self._gpus = gpus
        self._limits = limits

    async def admit(
        self, caller: SocketCaller, gpus: Sequence[str], setting: LimitedSetting, value: float
    ) -> dict[str, float]:
        """Refuse a request that a policy does not allow.

        Returns:
            The policies' ``minimum`` and ``maximum`` where they bound the setting: the power
            controller stays within them when it rounds a clock to a step.

        Raises:
            RequestError: The caller may not request this value for one of the GPUs, or the policies
                are unknown.
        """
        bounds: dict[str, float] = {}
        for gpu, limits in [(gpu, await self._limits_of(caller, gpu)) for gpu in gpus]:
            refuse_closed(gpu, limits, caller.namespace)
            violation = limits.violation(setting, value)
            if violation is not None:
                raise out_of_range(gpu, setting, value, violation, await self._accepted(gpu, setting))
            minimum, maximum = limits.range(setting)
            if minimum > 0:
                bounds["minimum"] = max(minimum, bounds.get("minimum", minimum))
            if maximum < math.inf:
                bounds["maximum"] = min(maximum, bounds.get("maximum", maximum))
        return bounds

    async def allowed(self, caller: SocketCaller, gpu: str, setting: LimitedSetting, accepted: Range) -> Range | None:
        """The range that a caller may request of a GPU that accepts `accepted`; None: nothing."""
        try:
            limits = await self._limits_of(caller, gpu)
        except RequestError:
            return None
        return limits.narrowed(setting, accepted)

    async def _limits_of(self, caller: SocketCaller, gpu: str) -> Limits:
        limits = self._limits()
        return limits.of(await self._gpus.product(gpu), caller.namespace) if limits.bounds else Limits()

    async def _accepted(self, gpu: str, setting: LimitedSetting) -> Range | None:
        try:
            return await self._gpus.accepted(gpu, setting)
        except RequestError:
            # The policy decides; the device's range only completes the message.
            return None
