"""Objects of the local mode, with optimistic concurrency as in the Kubernetes API server."""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Connection, delete, select, tuple_, update

from wattloop.errors import InputError, OperationError
from wattloop.files.reading import parse_json
from wattloop_operator.api.model import ApiModel, first_problem
from wattloop_operator.store.database import Database
from wattloop_operator.store.tables import OBJECT_VERSION, OBJECTS

KEY = ("kind", "namespace", "name")
# A database bounds the parameters of a query, SQLite to 32,766.
NAMES_OF_QUERY = 500
# The largest is a job with its template and its status, which an API server would take in 3 MiB.
MAX_BODY_MEMORY_BYTES = 256 * 1024 * 1024
Model = TypeVar("Model", bound=ApiModel)


@dataclass(frozen=True)
class StoredObject:
    """An object as it was read.

    Attributes:
        kind: Its kind, such as `TrainingRecurrence`.
        namespace: Its namespace.
        name: Its name, unique within kind and namespace.
        resource_version: Rises with every change of any object, and is never reused.
        body: A copy of the object.
    """

    kind: str
    namespace: str
    name: str
    resource_version: int
    body: dict[str, Any]

    def read_as(self, model: type[Model]) -> Model:
        """The object as a model of the API, with its resource version.

        Fields that this version does not know are left out, as an API server leaves out those that its
        CustomResourceDefinition does not have: another version may have written the object.

        Raises:
            InputError: A known field is missing or invalid.
        """
        metadata = {**self.body.get("metadata", {}), "resourceVersion": str(self.resource_version)}
        try:
            return model.model_validate({**self.body, "metadata": metadata}, extra="ignore")
        except ValidationError as error:
            raise InputError(
                f"{self.kind} {self.namespace}/{self.name}",
                f"an object that this version of Wattloop cannot read ({first_problem(error)})",
                "one that `wattloop run` of this version wrote; use that version, or another output folder",
            ) from error


class ObjectExistsError(OperationError):
    """An object of this kind and name exists already."""


class ObjectMissingError(OperationError):
    """The object does not exist."""


class ObjectConflictError(OperationError):
    """The object has changed since it was read."""


class Objects:
    """The objects in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, kind: str, namespace: str, name: str, body: Mapping[str, Any]) -> StoredObject:
        """Store a new object, durably when this returns.

        Raises:
            ObjectExistsError: An object of this name exists already.
            InputError: The body is not JSON.
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
        """The object, or None if it does not exist."""
        found = self._select(f"read {kind} {namespace}/{name}", *_is(kind, namespace, name))
        return found[0] if found else None

    def get_as(self, model: type[Model], namespace: str, name: str) -> Model | None:
        """The object of a kind as a model; None if it does not exist, or is left out since it cannot be read.

        Raises:
            InputError: It cannot be read, and the store leaves out none.
        """
        stored = self.get(model.__name__, namespace, name)
        return next(iter(self.read_as(model, () if stored is None else (stored,))), None)

    def read_as(self, model: type[Model], stored: Iterable[StoredObject]) -> tuple[Model, ...]:
        """Objects as models; those that cannot be read are left out.

        Raises:
            InputError: One cannot be read, and the store leaves out none.
        """
        return self._database.values(OBJECTS, ((each,) for each in stored), lambda each: each.read_as(model))

    def list(self, kind: str, namespace: str | None = None, prefix: str = "") -> tuple[StoredObject, ...]:
        """The objects of a kind, in one namespace or in all, ordered by namespace and name.

        Args:
            kind: Their kind.
            namespace: Their namespace; None for all.
            prefix: What their names begin with.
        """
        conditions = [OBJECTS.c.kind == kind]
        if namespace is not None:
            conditions.append(OBJECTS.c.namespace == namespace)
        if prefix:
            conditions.append(OBJECTS.c.name.startswith(prefix, autoescape=True))
        return self._select(f"list objects of kind {kind}", *conditions)

    def named(self, kind: str, names: Iterable[tuple[str, str]]) -> tuple[StoredObject, ...]:
        """The objects of a kind that have one of these namespaces and names."""
        column, listed = tuple_(OBJECTS.c.namespace, OBJECTS.c.name), list(names)
        parts = (listed[begin : begin + NAMES_OF_QUERY] for begin in range(0, len(listed), NAMES_OF_QUERY))
        found = (
            self._select(f"read objects of kind {kind}", OBJECTS.c.kind == kind, column.in_(part)) for part in parts
        )
        return tuple(itertools.chain.from_iterable(found))

    def names(self, kind: str) -> tuple[tuple[str, str], ...]:
        """Namespace and name of the objects of a kind, ordered, without their bodies."""
        query = select(OBJECTS.c.namespace, OBJECTS.c.name).where(OBJECTS.c.kind == kind)
        with self._database.reading(f"list the names of objects of kind {kind}") as on:
            rows = on.execute(query.order_by(OBJECTS.c.namespace, OBJECTS.c.name))
            return tuple((namespace, name) for namespace, name in self._database.texts(OBJECTS, rows))

    def replace(
        self, kind: str, namespace: str, name: str, body: Mapping[str, Any], *, expected_version: int
    ) -> StoredObject:
        """Replace the body of an object, durably when this returns.

        Raises:
            ConflictError: The object's version is not `expected_version`.
            ObjectMissingError: The object does not exist.
            InputError: The body is not JSON.
        """
        text = _json(kind, namespace, name, body)
        with self._database.writing(f"replace {kind} {namespace}/{name}") as on:
            self._check_version(on, kind, namespace, name, expected_version)
            version = _next_version(on)
            on.execute(update(OBJECTS).where(*_is(kind, namespace, name)).values(resource_version=version, body=text))
        return StoredObject(kind, namespace, name, version, json.loads(text))

    def delete(self, kind: str, namespace: str, name: str, *, expected_version: int | None = None) -> None:
        """Delete an object, durably when this returns.

        Args:
            kind: Its kind.
            namespace: Its namespace.
            name: Its name.
            expected_version: Delete only this version; None for any version.

        Raises:
            ConflictError: The object's version is not `expected_version`.
            ObjectMissingError: The object does not exist.
        """
        with self._database.writing(f"delete {kind} {namespace}/{name}") as on:
            self._check_version(on, kind, namespace, name, expected_version)
            on.execute(delete(OBJECTS).where(*_is(kind, namespace, name)))

    def _check_version(
        self, on: Connection, kind: str, namespace: str, name: str, expected_version: int | None
    ) -> None:
        # Locks the row until the transaction ends, so that the check still holds at the write.
        found = on.execute(
            select(OBJECTS.c.resource_version).where(*_is(kind, namespace, name)).with_for_update()
        ).scalar_one_or_none()
        if found is None:
            raise ObjectMissingError(f"{self._database.name}: {kind} {namespace}/{name} does not exist")
        if expected_version is not None and found != expected_version:
            raise ObjectConflictError(
                f"{self._database.name}: {kind} {namespace}/{name} has version {found}, expected {expected_version}: "
                "it has changed since it was read; read it again"
            )

    def _select(self, purpose: str, *conditions: ColumnElement[bool]) -> tuple[StoredObject, ...]:
        with self._database.reading(purpose) as on:
            rows = on.execute(
                select(*(OBJECTS.c[name] for name in KEY), OBJECTS.c.resource_version, OBJECTS.c.body)
                .where(*conditions)
                .order_by(OBJECTS.c.namespace, OBJECTS.c.name)
            )
            return self._database.values(OBJECTS, rows, _stored)


def _stored(kind: str, namespace: str, name: str, version: int, text: object) -> StoredObject:
    source, expected = f"{kind} {namespace}/{name}", "an object that Wattloop wrote"
    body = parse_json(text, source, expected, MAX_BODY_MEMORY_BYTES) if isinstance(text, str) else None
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise InputError(source, "a body that is not an object with metadata", expected)
    return StoredObject(kind, namespace, name, version, body)


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
