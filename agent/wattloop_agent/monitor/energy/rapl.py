"""The energy of processors and memory, by RAPL, as Linux shows it in a folder of files.

https://docs.kernel.org/power/powercap/powercap.html: a folder a zone, ``intel-rapl:0`` (a package) with
``intel-rapl:0:0`` (a part of it) inside or beside it, each with ``name``, ``energy_uj`` and ``max_energy_range_uj``, at
which the counter begins at 0 again. Root alone may read it.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

POWERCAP = Path("/sys/class/powercap")
# Not intel-rapl-mmio: the packages once more, by another way.
_ZONE = re.compile(r"intel-rapl:(\d+)(?::\d+)?")


@dataclass
class _Zone:
    folder: Path
    range_microjoules: int
    last_microjoules: int
    used_microjoules: int = 0


class Rapl:
    """Cumulative energy of each zone since this was made.

    Args:
        folder: Where Linux shows the zones; without any, there is nothing to read.

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
                logger.debug("no energy of a RAPL zone", extra={"zone": name, "told": str(error)})
        if not self._zones:
            logger.debug("no energy of processors and memory: no RAPL zone can be read", extra={"folder": str(folder)})

    def read(self) -> None:
        """Take what was used since; at least once in the time that a counter takes to come round (minutes)."""
        for name, zone in self._zones.items():
            try:
                counter = _counter(zone.folder)
            except (OSError, ValueError) as error:
                logger.debug("no energy of a RAPL zone", extra={"zone": name, "told": str(error)})
                continue
            zone.used_microjoules += used_since(zone.last_microjoules, counter, zone.range_microjoules)
            zone.last_microjoules = counter

    def joules(self) -> dict[str, float]:
        """By zone (``package-0``, ``package-0/dram``, …), the energy used since this was made."""
        return {name: zone.used_microjoules / 1e6 for name, zone in self._zones.items()}


def used_since(before: int, now: int, largest: int) -> int:
    """The difference of two readings of a counter that begins at 0 again after its largest value.

    Example:
        >>> used_since(90, 110, 1000), used_since(990, 10, 1000)
        (20, 21)
    """
    return now - before if now >= before else largest - before + now + 1


def _named(folder: Path) -> list[tuple[str, Path]]:
    """The zones, each named after itself and the package that it is a part of."""
    found: dict[str, Path] = {}
    for zone in [*sorted(folder.glob("intel-rapl:*")), *sorted(folder.glob("intel-rapl:*/intel-rapl:*"))]:
        match = _ZONE.fullmatch(zone.name)
        if match is None:
            continue
        try:
            name = (zone / "name").read_text().strip()
            package = zone.name.count(":") == 1
            parent = "" if package else f"{_parent(zone, match.group(1))}/"
        except OSError:
            continue
        found.setdefault(parent + name, zone)
    return list(found.items())


def _parent(zone: Path, number: str) -> str:
    package = f"intel-rapl:{number}"
    folder = zone.parent if zone.parent.name == package else zone.parent / package
    return (folder / "name").read_text().strip()


def _counter(zone: Path) -> int:
    return int((zone / "energy_uj").read_text())
