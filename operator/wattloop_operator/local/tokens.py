"""Tokens of the local mode: one a running attempt, in a file that only this user can read."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from wattloop_operator.reporting.interfaces import BearerToken, RecurrenceOwnershipError, UnknownCallerError


class Tokens:
    """Gives tokens to attempts and knows them again: the gate of the local reporting API.

    Args:
        folder: Where the files are made; it is this user's alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owners: dict[str, tuple[str, str]] = {}

    def file_for(self, namespace: str, name: str) -> Path:
        """Make the token of an attempt and write it to a file."""
        token = secrets.token_urlsafe(32)
        path = self._folder / f"{name}.token"
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(token)
        self._owners[token] = (namespace, name)
        return path

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> None:  # noqa: ARG002
        """See `Authorizer`."""
        given = token.text.encode()
        owners = list(self._owners.items())
        owner = next((own for known, own in owners if hmac.compare_digest(known.encode(), given)), None)
        if owner is None:
            raise UnknownCallerError("the token is not one that this run gave out")
        if owner != (namespace, name):
            raise RecurrenceOwnershipError(f"the token is not that of {namespace}/{name}")
