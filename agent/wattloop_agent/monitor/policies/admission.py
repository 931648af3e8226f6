"""Checks callers' requests against the GPUPowerPolicies of this node."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from wattloop.wire.node_energy import Range
from wattloop_agent import limit_refusals
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.monitor.gpu_meter import Meter
from wattloop_agent.monitor.identity import SocketCaller
from wattloop_agent.monitor.policies.policy_limits import Limits, PolicyLimits, in_words
from wattloop_agent.request_error import RequestError


class PolicyAdmission:
    """Admits or refuses requests.

    Args:
        gpus: The GPUs' models and ranges.
        limits: Gives the policies in force; it raises `RequestError` where they are unknown.
    """

    def __init__(self, gpus: Meter, limits: Callable[[], PolicyLimits]) -> None:
        self._gpus = gpus
        self._limits = limits

    async def admit(
        self, caller: SocketCaller, gpus: Sequence[str], setting: GpuSetting, value: float
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
            if limits.closed_by:
                policy, admitted = limits.closed_by[0].policy, limits.closed_by[0].namespaces or ()
                raise limit_refusals.namespace_not_admitted(gpu, policy, admitted, caller.namespace)
            violation = limits.violation(setting, value)
            if violation is not None:
                raise limit_refusals.out_of_range(gpu, setting, value, [violation, await self._accepted(gpu, setting)])
            minimum, maximum = limits.range(setting)
            if minimum > 0:
                bounds["minimum"] = max(minimum, bounds.get("minimum", minimum))
            if maximum < math.inf:
                bounds["maximum"] = min(maximum, bounds.get("maximum", maximum))
        return bounds

    async def allowed(self, caller: SocketCaller, gpu: str, setting: GpuSetting, accepted: Range) -> Range | None:
        """The range that a caller may request of a GPU that accepts `accepted`; None: nothing."""
        try:
            limits = await self._limits_of(caller, gpu)
        except RequestError:
            return None
        return limits.narrowed(setting, accepted)

    async def _limits_of(self, caller: SocketCaller, gpu: str) -> Limits:
        limits = self._limits()
        return limits.of(await self._gpus.product(gpu), caller.namespace) if limits.bounds else Limits()

    async def _accepted(self, gpu: str, setting: GpuSetting) -> str:
        try:
            return f"the device accepts {in_words(setting, await self._gpus.accepted(gpu, setting))}"
        except RequestError:
            # The policy decides; the device's range only completes the message.
            return "the device does not report what it accepts"
