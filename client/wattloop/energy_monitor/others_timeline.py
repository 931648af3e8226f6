"""When processes of others used a GPU, from the times at which they were seen."""

from __future__ import annotations

import bisect
import logging

from wattloop.energy.gpu_reading import OtherUse

logger = logging.getLogger("wattloop")

# Others are looked for once a second, so those that were seen at a time may have come or gone within one.
MARGIN_SECONDS = 1.0
MAX_INTERVALS = 4096


class OthersTimeline:
    """The intervals in which others used one GPU. It says so once.

    Args:
        uuid: The GPU.

    Example:
        >>> timeline = OthersTimeline("GPU-1")
        >>> timeline.add(OtherUse())
        >>> timeline.between(0.0, 9.0)
        False
        >>> timeline.add(OtherUse(unknown="no permission"))
        >>> timeline.between(0.0, 9.0) is None
        True
    """

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        # Begin and end of each interval, by rising time.
        self._begins: list[float] = []
        self._ends: list[float] = []
        self._unknown = ""

    def add(self, others: OtherUse) -> None:
        """Add what a reading says."""
        if others.unknown and not self._unknown:
            self._unknown = others.unknown
            logger.warning("GPU %s: whether others use it, too, is not known: %s", self._uuid, others.unknown)
        seen = others.seen_seconds
        if seen is None:
            return
        if not self._ends:
            text = "GPU %s is used by others, too (%s): the energy of a window meanwhile is an upper bound"
            logger.warning(text, self._uuid, others.seen)
        if self._ends and seen - MARGIN_SECONDS <= self._ends[-1]:
            self._ends[-1] = max(self._ends[-1], seen + MARGIN_SECONDS)
            return
        self._begins.append(seen - MARGIN_SECONDS)
        self._ends.append(seen + MARGIN_SECONDS)
        del self._begins[:-MAX_INTERVALS], self._ends[:-MAX_INTERVALS]

    def between(self, begin_seconds: float, end_seconds: float) -> bool | None:
        """Whether others used the GPU between two moments; None if that is not known."""
        first = bisect.bisect_left(self._ends, begin_seconds)
        if first < len(self._begins) and self._begins[first] <= end_seconds:
            return True
        return None if self._unknown else False
