"""Moves the wall clock of processes under test, and no other clock, by a preloaded libfaketime."""

from collections.abc import Mapping
from pathlib import Path

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


class WallClock:
    """A wall clock that can be set."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "wall-clock"
        self.jump(0)

    def jump(self, days: int) -> None:
        """Move it by this number of days from the real one."""
        aside = self._file.with_suffix(".aside")
        aside.write_text(f"{days:+d}d\n")
        aside.rename(self._file)

    def environment(self) -> Mapping[str, str]:
        """The environment of a process that uses it."""
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
