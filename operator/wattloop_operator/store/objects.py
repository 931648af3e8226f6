"""The local mode's memory of objects: what a cluster's API server would keep, with the same rules for writers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, select, update

from wattloop.errors import InputError, OperationError
from wattloop_operator.store.database import Database
from wattloop_operator.store.tables import OBJECT_VERSION, OBJECTS

KEY = ("kind", "namespace", "name")


@dataclass(frozen=True)
class StoredObject:
    """An object as it was when it was read.

    Attributes:
        kind: Its kind, as `TrainingRecurrence`.
        namespace: Its namespace.
        name: Its name, unique within kind and namespace.
        resource_version: Grows with every change of any object; never used twice.
        body: The object itself; changing it changes nothing in the store.
    """

    kind: str
    namespace: str
    name: str
    resource_version: int
    body: dict[str, Any]


class ObjectExistsError(OperationError):
    """An object of this kind and name is there already."""


class ObjectMissingError(OperationError):
    """There is no such object."""


class ConflictError(OperationError):
    """The object was changed by another since it was read: read it again, decide again."""


class Objects:
    """The objects in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, kind: str, namespace: str, name: str, body: Mapping[str, Any]) -> StoredObject:
        """Keep a new object, durably when this returns.

        Raises:
            ObjectExistsError: One of this name is there.
            InputError: The body is not JSON.
            OperationError: The database failed.
        """
        text = _json(kind, namespace, name, body)
        with self._database.writing(f"create {kind} {namespace}/{name}") as on:
            version = _next_version(on)
            inserted = on.execute(
                self._database.insert(OBJECTS)
                .values(kind=kind, namespace=namespace, name=name, resource_version=version, body=text)
                .on_conflict_do_nothing(index_elements=KEY)
                .returning(OBJECTS.c.resource_version)
            ).first()
            if inserted is None:
                raise ObjectExistsError(f"{self._database.name}: {kind} {namespace}/{name} exists already")
        return StoredObject(kind, namespace, name, version, json.loads(text))

    def get(self, kind: str, namespace: str, name: str) -> StoredObject | None:
        """The object, or None where there is none."""
        found = self._select(f"read {kind} {namespace}/{name}", *_is(kind, namespace, name))
        return found[0] if found else None

    def list(self, kind: str, namespace: str | None = None) -> tuple[StoredObject, ...]:
        """The objects of a kind, in one namespace or in all, ordered by namespace and name."""
        conditions = [OBJECTS.c.kind == kind]
        if namespace is not None:
            conditions.append(OBJECTS.c.namespace == namespace)
        return self._select(f"list objects of the kind {kind}", *conditions)

    def replace(
        self, kind: str, namespace: str, name: str, body: Mapping[str, Any], *, expected_version: int
    ) -> StoredObject:
        """Put a new body in place of the one that was read, durably when this returns.

        Raises:
            ConflictError: The object is no longer of `expected_version`.
            ObjectMissingError: It is gone.
            InputError: The body is not JSON.
            OperationError: The database failed.
        """
        text = _json(kind, namespace, name, body)
        with self._database.writing(f"replace {kind} {namespace}/{name}") as on:
            self._expect_version(on, kind, namespace, name, expected_version)
            version = _next_version(on)
            on.execute(update(OBJECTS).where(*_is(kind, namespace, name)).values(resource_version=version, body=text))
        return StoredObject(kind, namespace, name, version, json.loads(text))

    def delete(self, kind: str, namespace: str, name: str, *, expected_version: int | None = None) -> None:
        """Delete an object, durably when this returns.

        Args:
            kind: Its kind.
            namespace: Its namespace.
            name: Its name.
            expected_version: Delete it only if it is still of this version; None: whichever it is.

        Raises:
            ConflictError: The object is no longer of `expected_version`.
            ObjectMissingError: There is no such object.
            OperationError: The database failed.
        """
        with self._database.writing(f"delete {kind} {namespace}/{name}") as on:
            self._expect_version(on, kind, namespace, name, expected_version)
            on.execute(delete(OBJECTS).where(*_is(kind, namespace, name)))

    def _expect_version(
        self, on: Connection, kind: str, namespace: str, name: str, expected_version: int | None
    ) -> None:
        # Locks the row until the transaction ends, so that what is checked here still holds when it is written.
        found = on.execute(
            select(OBJECTS.c.resource_version).where(*_is(kind, namespace, name)).with_for_update()
        ).scalar_one_or_none()
        if found is None:
            raise ObjectMissingError(f"{self._database.name}: there is no {kind} {namespace}/{name}")
        if expected_version is not None and found != expected_version:
            raise ConflictError(
                f"{self._database.name}: {kind} {namespace}/{name} is of version {found}, not of {expected_version}: "
                "it was changed since it was read; read it again"
            )

    def _select(self, purpose: str, *conditions: ColumnElement[bool]) -> tuple[StoredObject, ...]:
        with self._database.reading(purpose) as on:
            rows = on.execute(
                select(*(OBJECTS.c[name] for name in KEY), OBJECTS.c.resource_version, OBJECTS.c.body)
                .where(*conditions)
                .order_by(OBJECTS.c.namespace, OBJECTS.c.name)
            ).all()
        return tuple(
            StoredObject(row.kind, row.namespace, row.name, row.resource_version, json.loads(row.body)) for row in rows
        )


def _is(kind: str, namespace: str, name: str) -> tuple[ColumnElement[bool], ...]:
    return (OBJECTS.c.kind == kind, OBJECTS.c.namespace == namespace, OBJECTS.c.name == name)


def _next_version(on: Connection) -> int:
    version: int = on.execute(
        update(OBJECT_VERSION)
        .values(resource_version=OBJECT_VERSION.c.resource_version + 1)
        .returning(OBJECT_VERSION.c.resource_version)
    ).scalar_one()
    return version


def _json(kind: str, namespace: str, name: str, body: Mapping[str, Any]) -> str:
    try:
        return json.dumps(body, allow_nan=False, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InputError(f"{kind} {namespace}/{name}", f"a body that is not JSON ({error})", "JSON values") from error
