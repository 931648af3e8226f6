"""Energy of processors and memory, from the RAPL counters that Linux exposes in a folder of files.

https://docs.kernel.org/power/powercap/powercap.html: one folder for each zone, ``intel-rapl:0`` (a
package) with ``intel-rapl:0:0`` (a part of it) inside or beside it, each with ``name``,
``energy_uj`` and ``max_energy_range_uj``, the value at which the counter wraps around to 0. Only
root can read them.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger("wattloop")

POWERCAP = Path("/sys/class/powercap")
# Excludes intel-rapl-mmio, which exposes the same packages by another interface.
_ZONE = re.compile(r"intel-rapl:(\d+)(?::\d+)?")


@dataclass
class _Zone:
    folder: Path
    range_microjoules: int
    last_microjoules: int
    used_microjoules: int = 0


class Rapl:
    """Cumulative energy of each zone since this object was created.

    Example:
        >>> Rapl(Path("/nonexistent")).joules()
        {}
    """

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._zones: dict[str, _Zone] = {}
        for name, zone in sorted(_named(folder)):
            try:
                limit = int((zone / "max_energy_range_uj").read_text())
                self._zones[name] = _Zone(zone, limit, _counter(zone))
            except (OSError, ValueError) as error:
                logger.debug("RAPL zone can't be read", extra={"zone": name, "problem": str(error)})
        if not self._zones:
            logger.debug("no energy of processors and memory: no readable RAPL zone", extra={"folder": str(folder)})

    def read(self) -> None:
        """Read the counters; call this more often than a counter wraps around (minutes)."""
        for name, zone in self._zones.items():
            try:
                counter = _counter(zone.folder)
            except (OSError, ValueError) as error:
                logger.debug("RAPL zone can't be read", extra={"zone": name, "problem": str(error)})
                continue
            # After its maximum the counter begins at 0 again.
            wrapped = zone.range_microjoules + 1 if counter < zone.last_microjoules else 0
            zone.used_microjoules += counter - zone.last_microjoules + wrapped
            zone.last_microjoules = counter

    def joules(self) -> dict[str, float]:
        """Return the energy used since creation, by zone (``package-0``, ``package-0/dram``, …)."""
        return {name: zone.used_microjoules / 1e6 for name, zone in self._zones.items()}


def _named(folder: Path) -> list[tuple[str, Path]]:
    """Return the zones, each with its name, prefixed by that of its package."""
    found: dict[str, Path] = {}
    for zone in [*sorted(folder.glob("intel-rapl:*")), *sorted(folder.glob("intel-rapl:*/intel-rapl:*"))]:
        match = _ZONE.fullmatch(zone.name)
        if match is None:
            continue
        try:
            name = (zone / "name").read_text().strip()
            parent = ""
            if zone.name.count(":") > 1:
                package = f"intel-rapl:{match.group(1)}"
                above = zone.parent if zone.parent.name == package else zone.parent / package
                parent = f"{(above / 'name').read_text().strip()}/"
        except OSError:
            continue
        found.setdefault(parent + name, zone)
    return list(found.items())


def _counter(zone: Path) -> int:
    return int((zone / "energy_uj").read_text())
