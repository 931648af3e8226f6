"""The time of `wattloop run`: no change of the wall clock during the run is elapsed time, or takes some away."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

# A suspended machine's time counts, as that of a wall clock does.
_BOOT_TIME = time.CLOCK_BOOTTIME if hasattr(time, "CLOCK_BOOTTIME") else time.CLOCK_MONOTONIC
_BEGAN = datetime.now(UTC)
_BEGAN_SECONDS = time.clock_gettime(_BOOT_TIME)


def now() -> datetime:
    """The wall clock's time when this module was imported, and what has passed since."""
    return _BEGAN + timedelta(seconds=time.clock_gettime(_BOOT_TIME) - _BEGAN_SECONDS)
