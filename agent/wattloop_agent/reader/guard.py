"""Holds callers to the guard rails of this node, before the setter is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from wattloop.node_energy import Range
from wattloop_agent.reader.bounds import Asked, GuardRails, Rails, out_of_range, refuse_closed
from wattloop_agent.reader.callers import Caller
from wattloop_agent.reader.meter import Meter
from wattloop_agent.refusal import Refused


class Guard:
    """Says what a caller may ask for.

    Args:
        meter: Knows the GPUs' products and what they accept.
        rails: Gives the guard rails of now; it raises `Refused` where they are not known.
    """

    def __init__(self, meter: Meter, rails: Callable[[], GuardRails]) -> None:
        self._meter = meter
        self._rails = rails

    async def admit(self, caller: Caller, gpus: Sequence[str], asked: Asked, value: float) -> dict[str, float]:
        """Refuse what a policy does not allow.

        Returns:
            The ends that the policies set, for the setter to stay within when it looks for a step.

        Raises:
            Refused: The caller may not ask, or not for this value on one of the GPUs; or it is not known what it may.
        """
        ends: dict[str, float] = {}
        for gpu, rails in [(gpu, await self._rails_of(caller, gpu)) for gpu in gpus]:
            refuse_closed(gpu, rails, caller.namespace)
            breach = rails.breach(asked, value)
            if breach is not None:
                raise out_of_range(gpu, asked, value, breach, await self._accepted(gpu, asked))
            least, most = rails.range(asked)
            if least > 0:
                ends["least"] = max(least, ends.get("least", least))
            if most < math.inf:
                ends["most"] = min(most, ends.get("most", most))
        return ends

    async def allowed(self, caller: Caller, gpu: str, asked: Asked, accepted: Range) -> Range | None:
        """What a caller may ask of a GPU that accepts this range; None: nothing."""
        try:
            rails = await self._rails_of(caller, gpu)
        except Refused:
            return None
        return rails.narrowed(asked, accepted)

    async def _rails_of(self, caller: Caller, gpu: str) -> Rails:
        rails = self._rails()
        return rails.of(await self._meter.product(gpu), caller.namespace) if rails.bounds else Rails()

    async def _accepted(self, gpu: str, asked: Asked) -> Range | None:
        try:
            return await self._meter.accepted(gpu, asked)
        except Refused:
            # The policy's word stands without the device's.
            return None
