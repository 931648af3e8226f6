"""Requests to the API server."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from wattloop.errors import OperationError
from wattloop_operator.api.gpu_power_policy import GPUPowerPolicy
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.resource import API_VERSION
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.transport import APPLY, JSON, METADATA_ONLY, Request, StatusError, Transport

FIELD_MANAGER = "wattloop-operator"
PAGE_OBJECTS = 500
NOT_FOUND, CONFLICT = 404, 409
REFUSED = frozenset({400, 403, 405, 413, 422})

Body = dict[str, Any]


@dataclass(frozen=True)
class ResourceType:
    """A kind of object and its address.

    Attributes:
        api_version: Group and version, such as batch/v1.
        plural: Its name in addresses.
        kind: Its name in manifests.
    """

    api_version: str
    plural: str
    kind: str

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The address of one object, or of all of them (in a namespace, or in the cluster).

        Example:
            >>> JOBS.path("team", "digits-0")
            '/apis/batch/v1/namespaces/team/jobs/digits-0'
        """
        root = "/apis/" if "/" in self.api_version else "/api/"
        parts = [f"namespaces/{quote(namespace, safe='')}"] if namespace else []
        parts += [self.plural, *([quote(name, safe="")] if name else []), *([subresource] if subresource else [])]
        return root + "/".join([self.api_version, *parts])


RECURRING_TRAINING_JOBS = ResourceType(
    API_VERSION, RecurringTrainingJob.resource.plural, RecurringTrainingJob.resource.kind
)
TRAINING_RECURRENCES = ResourceType(API_VERSION, TrainingRecurrence.resource.plural, TrainingRecurrence.resource.kind)
GPU_POWER_POLICIES = ResourceType(API_VERSION, GPUPowerPolicy.resource.plural, GPUPowerPolicy.resource.kind)
JOBS = ResourceType("batch/v1", "jobs", "Job")
PODS = ResourceType("v1", "pods", "Pod")
NODES = ResourceType("v1", "nodes", "Node")
EVENTS = ResourceType("events.k8s.io/v1", "events", "Event")
LEASES = ResourceType("coordination.k8s.io/v1", "leases", "Lease")
TOKEN_REVIEWS = ResourceType("authentication.k8s.io/v1", "tokenreviews", "TokenReview")


class NotFoundError(Exception):
    """There is no such object."""


class AlreadyExistsError(Exception):
    """An object of this name is there already."""


class ConflictError(Exception):
    """The object has changed, or is another one, than the one that was meant."""


class RejectedError(Exception):
    """The API server refuses the request as it stands; its text says why."""


class ClusterApi:
    """The verbs.

    Every method raises `OperationError` where the server cannot be reached or has trouble, and `RejectedError` where it
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
            NotFoundError: There is none, or the operator does not work in its namespace.
        """
        if namespace and self._namespaces and namespace not in self._namespaces:
            raise NotFoundError(f"the operator does not work in the namespace {namespace}")
        return self._call(Request("GET", resource.path(namespace, name)))

    def find(self, resource: ResourceType, namespace: str, name: str) -> Body | None:
        """One object as it is now; None where there is none."""
        try:
            return self.get(resource, namespace, name)
        except NotFoundError:
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
            AlreadyExistsError: One of this name is there already.
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
            NotFoundError: There is none.
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
        except (NotFoundError, ConflictError):
            return

    def resource_of(self, api_version: str, kind: str) -> ResourceType:
        """The address of a kind that is known by its name alone.

        Raises:
            RejectedError: The cluster has no such kind.
        """
        root = "/apis/" if "/" in api_version else "/api/"
        try:
            known = self._call(Request("GET", root + api_version))
        except NotFoundError:
            raise RejectedError(f"the cluster has no {api_version}; install what defines {kind}") from None
        for each in _resources(known):
            if each.get("kind") == kind and "/" not in str(each.get("name")):
                return ResourceType(api_version, str(each["name"]), kind)
        raise RejectedError(f"the cluster has no kind {kind} in {api_version}")

    def _call(self, request: Request) -> Body:
        try:
            return self._transport(request)
        except StatusError as error:
            raise _told_apart(error) from error


def _resources(known: Body) -> Iterator[Body]:
    yield from known.get("resources") or ()


def _told_apart(error: StatusError) -> Exception:
    if error.status == NOT_FOUND:
        return NotFoundError(error.message)
    if error.reason == "AlreadyExists":
        return AlreadyExistsError(error.message)
    if error.status == CONFLICT:
        return ConflictError(error.message)
    if "being terminated" in error.message or "exceeded quota" in error.message:
        return OperationError(str(error))
    if error.status in REFUSED:
        return RejectedError(error.message)
    return OperationError(str(error))


def status_to_apply(
    applied_to: RecurringTrainingJob | TrainingRecurrence | GPUPowerPolicy,
    status: Mapping[str, Any],
    *,
    resource_version: str | None = None,
) -> dict[str, Any]:
    """The body of a status apply. It names only the writer's own fields, so that writers never undo each other's.

    Args:
        applied_to: The object as it was read. Its uid is a precondition: a new object of the same name is another one.
        status: The writer's fields.
        resource_version: Also a precondition, unless None.
    """
    metadata = {"name": applied_to.metadata.name, "uid": applied_to.metadata.uid}
    metadata |= {"namespace": applied_to.metadata.namespace} if applied_to.metadata.namespace else {}
    metadata |= {"resourceVersion": resource_version} if resource_version else {}
    return {"apiVersion": applied_to.api_version, "kind": applied_to.kind, "metadata": metadata, "status": status}
