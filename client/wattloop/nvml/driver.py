"""Which load of the driver this is: its energy counters count from there."""

from __future__ import annotations

from pathlib import Path

from wattloop.nvml.library import simulated_driver_starts

MODULE = Path("/sys/module/nvidia")


def driver_load(module: Path = MODULE) -> str | None:
    """A name of this load of the driver: in one boot no two have the same.

    It is the number of the module's folder in sysfs: the kernel gives out no number twice (kernfs: "use 64bit inos if
    ino_t is 64bit", Linux 5.5; cyclically since 4.13), makes the folder when the module is loaded, and shows it in
    containers too. With simulated GPUs it is the simulator's word.

    Args:
        module: The module's folder.

    Returns:
        The name; None: it is not known, as where the driver is no module of this kernel (WSL).

    Example:
        >>> from wattloop.nvml import LibraryMissing
        >>> driver_load(Path("/sys/module/no-such-module")) is None
        True
    """
    starts = simulated_driver_starts()
    if starts is not None:
        return f"simulated {starts}"
    try:
        return f"module {module.stat().st_ino}"
    except OSError:
        return None
