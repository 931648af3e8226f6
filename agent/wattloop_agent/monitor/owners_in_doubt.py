"""Owners whose presence is unknown: each is logged once, and keeps its leases."""

from __future__ import annotations

import logging

from wattloop_agent.request_error import Reason, RequestError

logger = logging.getLogger(__name__)


class OwnersInDoubt:
    """The owners for which the last look gave no answer."""

    def __init__(self) -> None:
        self._owners: set[str] = set()

    def add(self, owner: str, error: OSError) -> None:
        """A look at this owner failed."""
        if owner not in self._owners:
            told = {"owner": owner, "problem": str(error)}
            logger.warning("it is not known whether an owner is there; it keeps what it holds", extra=told)
        self._owners.add(owner)

    def clear(self, owner: str) -> None:
        """A look at this owner told whether it is there."""
        self._owners.discard(owner)


def not_known(error: OSError) -> RequestError:
    """The refusal of a caller that the system does not identify."""
    return RequestError(Reason.UNAVAILABLE, f"the system does not tell who opened this connection: {error}; try again")
