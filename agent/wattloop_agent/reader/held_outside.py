"""What is held outside of the policies of now, because one was tightened meanwhile: told, and not undone.

A limit that moved under a training would teach its job something wrong, and what a GPU goes back to may lie further
outside than what is held. docs/decisions/agent.md has the reasons.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wattloop_agent.reader.bounds import Asked, GuardRails
from wattloop_agent.refusal import Refused

logger = logging.getLogger(__name__)

_ASKED = {
    "power_limit": Asked.POWER_LIMIT,
    "graphics_clock": Asked.GRAPHICS_CLOCK,
    "memory_clock": Asked.MEMORY_CLOCK,
}


def held_outside(
    leases: Iterable[Mapping[str, Any]], rails: GuardRails, products: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """By (GPU uuid, setting), the policies that a lease is outside of, in words; leases within all are not in it.

    Args:
        leases: As the setter's ``list`` verb gives them.
        rails: Those of now.
        products: By uuid, the GPUs' models; of one that is not known no policy of a product can be said to hold.
    """
    found = {}
    for lease in leases:
        asked, held = _ASKED[lease["setting"]], lease["held"]
        # Ranges hold for every pod; its namespaces only say who may ask.
        breach = None if held is None else rails.of(products.get(lease["uuid"], ""), None).breach(asked, held)
        if breach is not None:
            found[lease["uuid"], lease["setting"]] = f"{held:g} {asked.unit}: {breach}"
    return found


class HeldOutside:
    """Keeps what is held outside, and logs it once.

    Args:
        rails: Gives the guard rails of now; it raises `Refused` where they are not known.
        products: Gives by uuid the GPUs' models, as far as they are known.

    Attributes:
        found: As of `held_outside`.
    """

    def __init__(self, rails: Callable[[], GuardRails], products: Callable[[], Mapping[str, str]]) -> None:
        self._rails = rails
        self._products = products
        self.found: Mapping[tuple[str, str], str] = {}

    def look(self, leases: Iterable[Mapping[str, Any]]) -> None:
        """Take note of what the setter holds now."""
        held = list(leases)
        try:
            found = held_outside(held, self._rails(), self._products())
        except Refused:
            # Which policies hold is not known; that is told elsewhere.
            return
        owners = {(lease["uuid"], lease["setting"]): lease["owner"] for lease in held}
        for key, told in found.items():
            if self.found.get(key) != told:
                words = {"gpu": key[0], "setting": key[1], "owner": owners[key], "told": told}
                logger.warning("held outside of a policy, until its owner asks again or is gone", extra=words)
        self.found = found
