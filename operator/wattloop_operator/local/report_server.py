"""The reporting API of a local run: at a Unix socket in the run's own folder, with one token for each attempt."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from wattloop.commands.settings import Address
from wattloop_operator.api.reporting_source import ReportingSource
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.local.run_clock import now
from wattloop_operator.reporting.interfaces import BearerToken, OwnershipError, UnknownCallerError
from wattloop_operator.reporting.progress_writer import StoredProgress
from wattloop_operator.store.store import Store

SOCKET = "reports.sock"


def report_address(source: ReportingSource, folder: Path) -> Address | Path:
    """Where a run listens for the reports of its trainings: at a socket in a folder that only this user can enter.

    Other users of the machine reach each port of the loopback interface, and could keep the server busy there. The
    callbacks for Kubeflow Trainer, which are not Wattloop's, can connect to a port alone.
    """
    return Address("127.0.0.1", 0) if source is ReportingSource.KUBEFLOW_TRAINER else folder / SOCKET


class LocalTokens:
    """Creates one token for each attempt, and is the `Authorizer` of the local reporting API.

    Args:
        folder: Folder for the token files. Only this user can read it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owners: dict[bytes, tuple[str, str]] = {}

    def create_file(self, namespace: str, name: str) -> Path:
        """Create the token of an attempt and write it to a file that only this user can read."""
        token = secrets.token_urlsafe(32)
        path = self._folder / f"{name}.token"
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(token)
        self._owners[BearerToken(token).digest] = (namespace, name)
        return path

    def is_authorized(self, token: BearerToken, namespace: str, name: str) -> bool:
        """See `Authorizer`."""
        return self._owners.get(token.digest) == (namespace, name)

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> str:  # noqa: ARG002
        """See `Authorizer`."""
        # Looked up by its digest, so the time that this takes says nothing of any token.
        owner = self._owners.get(token.digest)
        if owner is None:
            raise UnknownCallerError("this run did not issue the token")
        if owner != (namespace, name):
            raise OwnershipError(f"the token is not that of {namespace}/{name}")
        return ""


RECURRENCE = "TrainingRecurrence"


def local_progress(store: Store, wake: Callable[[], None] = lambda: None) -> StoredProgress:
    """The `ProgressStore` of the local reporting API: objects and rows lie in the same database.

    Args:
        store: The database.
        wake: Called after progress was written.
    """

    def find(namespace: str, name: str) -> TrainingRecurrence | None:
        stored = store.objects.get(RECURRENCE, namespace, name)
        return None if stored is None else stored.read_as(TrainingRecurrence)

    return StoredProgress(find, store.attempt_progress, now, wake)
