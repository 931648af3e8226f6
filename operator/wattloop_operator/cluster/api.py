"""What the operator asks of the API server, in its verbs, with the errors that callers tell apart."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from wattloop.errors import OperationError
from wattloop_operator.cluster.resources import ResourceType
from wattloop_operator.cluster.transport import APPLY, JSON, METADATA_ONLY, AnswerError, Request, Transport

FIELD_MANAGER = "wattloop-operator"
PAGE_OBJECTS = 500
NOT_FOUND, CONFLICT = 404, 409
REFUSED = frozenset({400, 403, 405, 413, 422})

Body = dict[str, Any]


class MissingError(Exception):
    """There is no such object."""


class ExistsError(Exception):
    """An object of this name is there already."""


class ConflictError(Exception):
    """The object has changed, or is another one, than the one that was meant."""


class RefusedError(Exception):
    """The API server refuses the request as it stands; its text says why."""


class ClusterApi:
    """The verbs.

    Every method raises `OperationError` where the server cannot be reached or has trouble, and `RefusedError` where it
    refuses.

    Args:
        transport: Carries the requests.
        namespaces: The namespaces that the operator works in; empty: all. No object of another one is looked up: it is
            reported as missing.
    """

    def __init__(self, transport: Transport, namespaces: Collection[str] = ()) -> None:
        self._transport = transport
        self._namespaces = frozenset(namespaces)

    def get(self, resource: ResourceType, namespace: str, name: str) -> Body:
        """One object as it is now.

        Raises:
            MissingError: There is none, or the operator does not work in its namespace.
        """
        if namespace and self._namespaces and namespace not in self._namespaces:
            raise MissingError(f"the operator does not work in the namespace {namespace}")
        return self._call(Request("GET", resource.path(namespace, name)))

    def find(self, resource: ResourceType, namespace: str, name: str) -> Body | None:
        """One object as it is now; None where there is none."""
        try:
            return self.get(resource, namespace, name)
        except MissingError:
            return None

    def list(
        self, resource: ResourceType, *, namespace: str = "", labels: str = "", metadata_only: bool = False
    ) -> tuple[list[Body], str]:
        """The objects of a kind, and the resource version of the list; page by page, all of one moment."""
        items: list[Body] = []
        query = {"limit": str(PAGE_OBJECTS)} | ({"labelSelector": labels} if labels else {})
        accept = METADATA_ONLY if metadata_only else JSON
        while True:
            page = self._call(Request("GET", resource.path(namespace), query, accept=accept))
            items += page.get("items") or []
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return items, str(page["metadata"]["resourceVersion"])
            query = query | {"continue": following}

    def create(self, resource: ResourceType, body: Mapping[str, Any], *, dry_run: bool = False) -> Body:
        """Create an object; with `dry_run` the server checks it and keeps nothing.

        Raises:
            ExistsError: One of this name is there already.
        """
        namespace = str(body["metadata"].get("namespace", ""))
        query = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        return self._call(Request("POST", resource.path(namespace), query, body))

    def review(self, resource: ResourceType, body: Mapping[str, Any]) -> Body:
        """Ask a question that is put as an object, such as a TokenReview."""
        return self._call(Request("POST", resource.path(), {}, body))

    def apply_status(
        self,
        resource: ResourceType,
        body: Mapping[str, Any],
        *,
        field_manager: str = FIELD_MANAGER,
    ) -> Body:
        """Apply the status of an object, server-side: what this manager said before and does not say now is removed.

        With `metadata.resourceVersion` it is applied only to the object as it was at that version.

        Raises:
            MissingError: There is none.
            ConflictError: It has changed since.
        """
        metadata = body["metadata"]
        path = resource.path(str(metadata.get("namespace", "")), str(metadata["name"]), "status")
        query = {"fieldManager": field_manager, "force": "true"}
        return self._call(Request("PATCH", path, query, body, content_type=APPLY))

    def delete(self, resource: ResourceType, namespace: str, name: str, uid: str) -> None:
        """Delete one object and, later, what it owns; that it is gone, or is another one by now, is no error."""
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            self._call(Request("DELETE", resource.path(namespace, name), {}, options))
        except (MissingError, ConflictError):
            return

    def resource_of(self, api_version: str, kind: str) -> ResourceType:
        """The address of a kind that is known by its name alone.

        Raises:
            RefusedError: The cluster has no such kind.
        """
        root = "/apis/" if "/" in api_version else "/api/"
        try:
            known = self._call(Request("GET", root + api_version))
        except MissingError:
            raise RefusedError(f"the cluster has no {api_version}; install what defines {kind}") from None
        for each in _resources(known):
            if each.get("kind") == kind and "/" not in str(each.get("name")):
                return ResourceType(api_version, str(each["name"]), kind)
        raise RefusedError(f"the cluster has no kind {kind} in {api_version}")

    def _call(self, request: Request) -> Body:
        try:
            return self._transport(request)
        except AnswerError as error:
            raise _told_apart(error) from error


def _resources(known: Body) -> Iterator[Body]:
    yield from known.get("resources") or ()


def _told_apart(error: AnswerError) -> Exception:
    if error.status == NOT_FOUND:
        return MissingError(error.message)
    if error.reason == "AlreadyExists":
        return ExistsError(error.message)
    if error.status == CONFLICT:
        return ConflictError(error.message)
    if "being terminated" in error.message or "exceeded quota" in error.message:
        return OperationError(str(error))
    if error.status in REFUSED:
        return RefusedError(error.message)
    return OperationError(str(error))
