"""The output folder of `wattloop run`: its files, and the locks that keep two runs apart.

A folder belongs to one job and is used by one run at a time. A job of a shared database is run from
one folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wattloop.errors import OperationError, UsageError
from wattloop.files.atomic_write import open_atomic
from wattloop.files.reading import parse_json, read_text, special_file_kind
from wattloop.wire.message_fields import shown
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.store.address import FILE_NAME
from wattloop_operator.store.objects import ObjectExistsError, Objects

OWNER_FILE = "wattloop-run.json"
LOCK_FILE = ".lock"
PRIVATE_FOLDER_MODE = 0o700
MAX_OWNER_BYTES = 64 * 1024
MAX_OWNER_MEMORY_BYTES = 1024 * 1024
# A disk with less is full: a line of output may not fit.
MIN_FREE_BYTES = 4096
# Kind of the object that records which folder runs a job of a shared database.
JOB_LOCK = "LocalRun"


@dataclass(frozen=True)
class OutputFolder:
    """An output folder that this process has locked.

    Attributes:
        path: The folder, absolute.
    """

    path: Path

    @classmethod
    @contextlib.contextmanager
    def locked(cls, path: Path, owner: dict[str, object]) -> Iterator[Self]:
        """Lock a folder for a job.

        The folder is new, or from an earlier run of the same job with the same settings.

        Args:
            path: The folder. It is created if it does not exist.
            owner: What the folder belongs to: the job and the settings that its results depend on.

        Raises:
            UsageError: It belongs to another job, contains other files or a special file, or is used by another
                run. It is not changed.
            OperationError: It cannot be created or written.
            InputError: Its record of what it belongs to cannot be read.
        """
        folder = cls(path.absolute())
        with folder._as_operation_errors():
            is_owned = not folder.path.is_dir() or (folder.path / OWNER_FILE).exists()
            others = [] if is_owned else sorted(each.name for each in folder.path.iterdir() if each.name != LOCK_FILE)
            if others:
                text = f"it contains {others[0]} and no {OWNER_FILE}; choose an empty folder or one of an earlier run"
                raise UsageError(f"{folder.path} is no output folder of wattloop run: {text}")
            # Others may not read the variables of the job. A folder that exists stays as its user made it.
            folder.path.parent.mkdir(parents=True, exist_ok=True)
            folder.path.mkdir(mode=PRIVATE_FOLDER_MODE, exist_ok=True)
            # Not removed at the end: otherwise two runs could lock two files of the same name.
            lock = os.open(folder.path / LOCK_FILE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = "another wattloop run is using it; wait for it or choose another folder"
                raise UsageError(f"{folder.path}: {text}") from None
            with folder._as_operation_errors():
                folder._check_owner(owner)
                folder.logs.mkdir(mode=PRIVATE_FOLDER_MODE, exist_ok=True)
            yield folder
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def _as_operation_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = f"cannot be used as output folder: {error.strerror}; choose another"
            raise OperationError(f"{self.path}: {text}") from error

    def _check_owner(self, owner: dict[str, object]) -> None:
        marker = self.path / OWNER_FILE
        if not marker.exists():
            with open_atomic(marker, is_private=True) as stream:
                json.dump(owner, stream, indent=2)
            return
        expected = "the owner of an output folder; choose another --output"
        found = parse_json(read_text(marker, MAX_OWNER_BYTES, expected), str(marker), expected, MAX_OWNER_MEMORY_BYTES)
        for key, value in owner.items():
            if not isinstance(found, dict) or found.get(key) != value:
                was = found.get(key) if isinstance(found, dict) else found
                text = f"its {key} is {shown(was)}, this run's is {value!r}; choose another --output"
                raise UsageError(f"{self.path} belongs to another run: {text}")
        for entry in (*self.path.iterdir(), *self.logs.glob("*")):
            # To open a named pipe waits for its other end, also after a signal.
            kind = special_file_kind(entry)
            if kind is not None:
                raise UsageError(
                    f"{entry}: found {kind}, expected a file of a run; remove it, or choose another folder"
                )

    def readers_advice(self) -> str:
        """What to do if others can read the database of an earlier run; empty if they cannot, or there is none."""
        try:
            folder, database = self.path.stat().st_mode, self.database.stat().st_mode
        except OSError:
            return ""
        by_group = folder & stat.S_IXGRP and database & stat.S_IRGRP
        by_others = folder & stat.S_IXOTH and database & stat.S_IROTH
        if not by_group and not by_others:
            return ""
        return (
            f"{self.path}: other users of this machine can read the database, which has the variables of the job; to "
            f"prevent it: chmod -R go= {shlex.quote(str(self.path))}"
        )

    @property
    def database(self) -> Path:
        """The SQLite file of the store."""
        return self.path / FILE_NAME

    @property
    def recurrences(self) -> Path:
        """The table of recurrences."""
        return self.path / "recurrences.csv"

    @property
    def logs(self) -> Path:
        """Folder of the training processes' outputs, with one file for each attempt."""
        return self.path / "logs"

    @property
    def models(self) -> Path:
        """Folder of the models that attempts write and publish (`spec.output`)."""
        return self.path / "models"

    @property
    def gpus_state(self) -> Path:
        """State of the simulated GPUs."""
        return self.path / "simulated-gpus"

    @property
    def agent_state(self) -> Path:
        """The node agent's leases."""
        return self.path / "agent"

    @property
    def agent_log(self) -> Path:
        """Log of the node agent."""
        return self.path / "agent.log"


def lock_job(objects: Objects, job: RecurringTrainingJob, output: Path) -> None:
    """Record the output folder of a job in a shared database, so that no second folder runs it.

    Raises:
        UsageError: Another folder runs the job, and still exists.
        OperationError: The database failed.
    """
    namespace, name = job.metadata.namespace, job.metadata.name
    here = {"host": socket.gethostname(), "output": str(output)}
    try:
        objects.create(JOB_LOCK, namespace, name, here)
    except ObjectExistsError:
        found = objects.get(JOB_LOCK, namespace, name)
        if found is None or found.body == here:
            return
        host, folder = str(found.body.get("host")), str(found.body.get("output"))
        if host != here["host"] or Path(folder).exists():
            raise UsageError(
                f"job {namespace}/{name} of this database is run from {folder} on {host}; "
                "name that folder with --output, or another database with --database"
            ) from None
        objects.replace(JOB_LOCK, namespace, name, here, expected_version=found.resource_version)


def require_space(folder: Path) -> None:
    """Check that the disk of a folder is not full.

    Raises:
        OperationError: It is, so that a training that writes there fails, whatever its batch size is.
    """
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES:
        raise OperationError(
            f"{folder}: the disk is full, and a training whose output is written there has failed; its attempt does "
            "not count. Free space, then run the same command again"
        )
