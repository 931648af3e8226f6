"""The current boot of the machine: its id and its clock."""

from __future__ import annotations

import time
from pathlib import Path


def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def boot_time_seconds() -> float:
    """Seconds since boot, including suspended time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
