"""The output folder of `wattloop run`: one job's, one run's at a time, and where everything stands in it."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wattloop.errors import CannotError, UsageError
from wattloop.files.whole import written_whole

OWNER_FILE = "wattloop-run.json"


@dataclass(frozen=True)
class OutputFolder:
    """An output folder that this process holds.

    Attributes:
        path: The folder, absolute.
        lock: The open lock; it goes with the process, however that ends.
    """

    path: Path
    lock: int

    @classmethod
    def open(cls, path: Path, owner: dict[str, object]) -> Self:
        """Take a folder for a job: a new one, or one of an earlier run of the same job with the same settings.

        Args:
            path: The folder; it is made where it is missing.
            owner: What the folder belongs to: the job and what its figures depend on.

        Raises:
            UsageError: It belongs to another job, holds other files, or another run uses it now.
            CannotError: It cannot be made or written.
        """
        path = path.absolute()
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = os.open(path / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotError(f"{path}: cannot be used as output folder: {error.strerror}; choose another") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise UsageError(
                f"{path}: another wattloop run is using it; wait for it or choose another folder"
            ) from None
        folder = cls(path, lock)
        folder._claim(owner)
        return folder

    def _claim(self, owner: dict[str, object]) -> None:
        marker = self.path / OWNER_FILE
        if not marker.exists():
            others = sorted(entry.name for entry in self.path.iterdir() if entry.name != ".lock")
            if others:
                text = f"it holds {others[0]} and no {OWNER_FILE}; name an empty folder or one of an earlier run"
                raise UsageError(f"{self.path} is no output folder of wattloop run: {text}")
            with written_whole(marker) as stream:
                json.dump(owner, stream, indent=2)
            return
        try:
            found = json.loads(marker.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CannotError(f"{marker}: cannot be read ({error}); choose another folder") from error
        for key, value in owner.items():
            if not isinstance(found, dict) or found.get(key) != value:
                was = found.get(key) if isinstance(found, dict) else found
                text = f"its {key} is {was!r}, this run's is {value!r}; choose another --output"
                raise UsageError(f"{self.path} belongs to another run: {text}")

    @property
    def database(self) -> Path:
        """The SQLite file of the store."""
        return self.path / "wattloop.db"

    @property
    def recurrences(self) -> Path:
        """The table of recurrences."""
        return self.path / "recurrences.csv"

    @property
    def logs(self) -> Path:
        """Where the training processes' outputs go, a file an attempt."""
        return self.path / "logs"

    @property
    def gpus_state(self) -> Path:
        """The simulated GPUs."""
        return self.path / "simulated-gpus"
