"""What is held outside of the policies of now, because one was tightened meanwhile: told, and not undone.

A limit that moved under a training would teach its job something wrong, and what a GPU goes back to may lie further
outside than what is held. docs/decisions/agent.md has the reasons.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wattloop_agent.monitor.policies.limits import Asked, PolicyLimits
from wattloop_agent.request_error import RequestError

logger = logging.getLogger(__name__)

_ASKED = {
    "power_limit": Asked.POWER_LIMIT,
    "graphics_clock": Asked.GRAPHICS_CLOCK,
    "memory_clock": Asked.MEMORY_CLOCK,
}


def policy_violations(
    leases: Iterable[Mapping[str, Any]], limits: PolicyLimits, products: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """By (GPU uuid, setting), the policies that a lease is outside of, in words; leases within all are not in it.

    Args:
        leases: As the power controller's ``list`` verb gives them.
        limits: Those of now.
        products: By uuid, the GPUs' models; of one that is not known no policy of a product can be said to hold.
    """
    found = {}
    for lease in leases:
        asked, held = _ASKED[lease["setting"]], lease["held"]
        # Ranges hold for every pod; its namespaces only say who may ask.
        violation = None if held is None else limits.of(products.get(lease["uuid"], ""), None).violation(asked, held)
        if violation is not None:
            found[lease["uuid"], lease["setting"]] = f"{held:g} {asked.unit}: {violation}"
    return found


class PolicyViolations:
    """Keeps what is held outside, and logs it once.

    Args:
        limits: Gives the guard rails of now; it raises `RequestError` where they are not known.
        products: Gives by uuid the GPUs' models, as far as they are known.

    Attributes:
        found: As of `policy_violations`.
    """

    def __init__(self, limits: Callable[[], PolicyLimits], products: Callable[[], Mapping[str, str]]) -> None:
        self._limits = limits
        self._products = products
        self.found: Mapping[tuple[str, str], str] = {}

    def look(self, leases: Iterable[Mapping[str, Any]]) -> None:
        """Take note of what the power controller holds now."""
        held = list(leases)
        try:
            found = policy_violations(held, self._limits(), self._products())
        except RequestError:
            # Which policies hold is not known; that is told elsewhere.
            return
        owners = {(lease["uuid"], lease["setting"]): lease["owner"] for lease in held}
        for key, told in found.items():
            if self.found.get(key) != told:
                words = {"gpu": key[0], "setting": key[1], "owner": owners[key], "told": told}
                logger.warning("held outside of a policy, until its owner asks again or is gone", extra=words)
        self.found = found
