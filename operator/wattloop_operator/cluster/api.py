"""Operations on objects of the API server, with the errors that callers distinguish."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from wattloop.errors import OperationError
from wattloop_operator.api.frequency_plan import FrequencyPlan
from wattloop_operator.api.gpu_node import GPUNode
from wattloop_operator.api.gpu_power_policy import GPUPowerPolicy
from wattloop_operator.api.meta import ObjectMeta
from wattloop_operator.api.model import API_VERSION
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api_transport import (
    APPLY,
    JSON,
    KEY_SET,
    MERGE,
    METADATA_ONLY,
    Request,
    ResponseTooLargeError,
    StatusError,
    Transport,
)
from wattloop_operator.cluster.bounded_json import parse_response
from wattloop_operator.workloads.controllers import project_of

FIELD_MANAGER = "wattloop-operator"
PAGE_OBJECTS = 500
# By so much a page shrinks whose objects are too large.
PAGE_DIVISOR = 8
NOT_FOUND, CONFLICT = 404, 409
# The message by which RBAC refuses the creation of a workload's kind.
_MISSING_RIGHT = re.compile(r' cannot create resource "[^"]*" in API group "[^"]+" in the namespace ')
_RIGHT_REMEDY = "; add the kind to operator.workloadKinds in the values of the chart"
REJECTED = frozenset({400, 403, 405, 413, 422})

Body = dict[str, Any]


@dataclass(frozen=True)
class ResourceType:
    """A kind and its path.

    Attributes:
        api_version: Group and version, such as batch/v1.
        plural: Its name in paths.
        kind: Its name in manifests.
    """

    api_version: str
    plural: str
    kind: str

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of one object, or of all objects of a namespace or of the cluster.

        Example:
            >>> JOBS.path("team", "digits-0")
            '/apis/batch/v1/namespaces/team/jobs/digits-0'
        """
        in_namespace = ["namespaces", namespace] if namespace else []
        return _path(self.api_version, *in_namespace, self.plural, *filter(None, (name, subresource)))


RECURRING_TRAINING_JOBS = ResourceType(
    API_VERSION, RecurringTrainingJob.resource.plural, RecurringTrainingJob.resource.kind
)
TRAINING_RECURRENCES = ResourceType(API_VERSION, TrainingRecurrence.resource.plural, TrainingRecurrence.resource.kind)
GPU_POWER_POLICIES = ResourceType(API_VERSION, GPUPowerPolicy.resource.plural, GPUPowerPolicy.resource.kind)
GPU_NODES = ResourceType(API_VERSION, GPUNode.resource.plural, GPUNode.resource.kind)
FREQUENCY_PLANS = ResourceType(API_VERSION, FrequencyPlan.resource.plural, FrequencyPlan.resource.kind)
JOBS = ResourceType("batch/v1", "jobs", "Job")
PODS = ResourceType("v1", "pods", "Pod")
SERVICES = ResourceType("v1", "services", "Service")
NODES = ResourceType("v1", "nodes", "Node")
EVENTS = ResourceType("events.k8s.io/v1", "events", "Event")
DEPLOYMENTS = ResourceType("apps/v1", "deployments", "Deployment")
LEASES = ResourceType("coordination.k8s.io/v1", "leases", "Lease")
SELF_SUBJECT_ACCESS_REVIEWS = ResourceType(
    "authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"
)
SUBJECT_ACCESS_REVIEWS = ResourceType("authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview")
TOKEN_REVIEWS = ResourceType("authentication.k8s.io/v1", "tokenreviews", "TokenReview")


class NotFoundError(Exception):
    """The object does not exist."""


class AlreadyExistsError(Exception):
    """An object of this name exists."""


class ConflictError(Exception):
    """The object has another version or uid than the request expects."""


class RejectedError(Exception):
    """The API server rejects the request; the text is its reason."""


class ClusterApi:
    """Reads and writes objects.

    Every method raises `OperationError` if the server cannot be reached or has a temporary problem,
    and `RejectedError` if it rejects the request.

    Args:
        namespaces: The operator's namespaces; empty: all. Objects of other namespaces count as not
            found, without a request.
    """

    def __init__(self, transport: Transport, namespaces: Collection[str] = ()) -> None:
        self._transport = transport
        self._namespaces = frozenset(namespaces)
        self._resources = {(each.api_version, each.kind): each for each in (JOBS, PODS)}

    def get(self, resource: ResourceType, namespace: str, name: str) -> Body:
        """The current object.

        Raises:
            NotFoundError: It does not exist, or the operator does not work in its namespace.
        """
        if namespace and self._namespaces and namespace not in self._namespaces:
            raise NotFoundError(f"the operator does not work in the namespace {namespace}")
        return self._call(Request("GET", resource.path(namespace, name)))

    def find(self, resource: ResourceType, namespace: str, name: str) -> Body | None:
        """The current object; None if it does not exist."""
        try:
            return self.get(resource, namespace, name)
        except NotFoundError:
            return None

    def list(
        self,
        resource: ResourceType,
        *,
        namespace: str = "",
        labels: str = "",
        metadata_only: bool = False,
        part: Callable[[Body], Body] | None = None,
    ) -> tuple[list[Body], str]:
        """The objects of a kind, from all pages of one list, and the list's resource version.

        Args:
            resource: The kind.
            namespace: Namespace; empty: all.
            labels: Label selector.
            metadata_only: Whether the server sends nothing but metadata.
            part: Returns what is kept of each object; None: all of it.
        """
        items: list[Body] = []
        version = ""
        for page in self.pages(
            resource,
            namespace=namespace,
            labels=labels,
            accept=METADATA_ONLY if metadata_only else JSON,
            parse=parse_response if part is None else lambda data: parse_response(data, part),
        ):
            items += page.get("items") or []
            version = str(page["metadata"]["resourceVersion"])
        return items, version

    def pages(
        self,
        resource: ResourceType,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        accept: str = JSON,
        parse: Callable[[bytes], Any] = parse_response,
        max_objects: int = PAGE_OBJECTS,
    ) -> Iterator[Body]:
        """The pages of one list; the version of the list is in the metadata of each.

        Args:
            resource: The kind.
            namespace: Namespace; empty: all.
            labels: Label selector.
            fields: Field selector.
            accept: Accepted content type.
            parse: Parses a page.
            max_objects: Of a page; large objects have smaller pages.
        """
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        query = {name: selector for name, selector in selectors.items() if selector}
        limit = max_objects
        while True:
            query = query | {"limit": str(limit)}
            request = Request("GET", resource.path(namespace), query, accept=accept, parse=parse)
            try:
                page = self._call(request)
            except ResponseTooLargeError as error:
                if limit == 1:
                    raise OperationError(str(error)) from error
                limit = max(1, limit // PAGE_DIVISOR)
                continue
            limit = min(max_objects, 2 * limit)
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query = query | {"continue": token}

    def create(
        self, resource: ResourceType, body: Mapping[str, Any], *, dry_run: bool = False, strict: bool = False
    ) -> Body:
        """Create an object; with `dry_run` the server validates it and does not store it.

        Args:
            resource: The kind.
            body: The object.
            dry_run: Whether nothing is stored.
            strict: Whether the server rejects fields that its kind does not have, which it drops otherwise.

        Raises:
            AlreadyExistsError: An object of this name exists.
        """
        namespace = str(body["metadata"].get("namespace", ""))
        query = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        query |= {"fieldValidation": "Strict"} if strict else {}
        return self._call(Request("POST", resource.path(namespace), query, body))

    def review(self, kind: ResourceType, spec: Mapping[str, Any]) -> Body:
        """Ask the API server by an object such as a TokenReview; returns the status, which is the answer."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": spec}
        return dict(self._call(Request("POST", kind.path(), {}, body)).get("status") or {})

    def token_keys(self) -> Sequence[Any]:
        """The public keys of service-account tokens, as a JSON Web Key Set has them; every account may read them."""
        return self._call(Request("GET", "/openid/v1/jwks", accept=KEY_SET)).get("keys") or ()

    def apply_status(
        self, resource: ResourceType, body: Mapping[str, Any], *, field_manager: str = FIELD_MANAGER
    ) -> Body:
        """Apply the status of an object by server-side apply, which removes fields that this manager no longer sets.

        Args:
            resource: The kind.
            body: The object with its status; see `status_to_apply`.
            field_manager: Owner of the fields.

        Raises:
            NotFoundError: The object does not exist.
            ConflictError: The object has another uid or version than the body.
        """
        metadata = body["metadata"]
        path = resource.path(str(metadata.get("namespace", "")), str(metadata["name"]), "status")
        query = {"fieldManager": field_manager, "force": "true"}
        return self._call(Request("PATCH", path, query, body, content_type=APPLY))

    def patch_metadata(self, resource: ResourceType, metadata: ObjectMeta, changes: Mapping[str, Any]) -> Body:
        """Replace fields of the metadata of an object, and leave the others.

        Args:
            resource: The kind.
            metadata: Namespace, name and uid of the object; the uid is a precondition.
            changes: The fields in wire form.

        Raises:
            NotFoundError: The object does not exist.
            ConflictError: The object has another uid.
        """
        body = {"metadata": {"uid": metadata.uid, **changes}}
        path, query = resource.path(metadata.namespace, metadata.name), {"fieldManager": FIELD_MANAGER}
        return self._call(Request("PATCH", path, query, body, content_type=MERGE))

    def delete(
        self, resource: ResourceType, namespace: str, name: str, uid: str, *, after_dependents: bool = False
    ) -> None:
        """Delete an object and what it owns, in the background or first; no error if this uid is missing."""
        policy = "Foreground" if after_dependents else "Background"
        options = {"propagationPolicy": policy, "preconditions": {"uid": uid}}
        try:
            self._call(Request("DELETE", resource.path(namespace, name), {}, options))
        except (NotFoundError, ConflictError):
            return

    def resource_of(self, api_version: str, kind: str) -> ResourceType:
        """The path of a kind, which is remembered.

        Raises:
            RejectedError: The cluster does not have the kind.
        """
        known = self._resources.get((api_version, kind))
        if known is None:
            known = self._resources[(api_version, kind)] = self._discovered(api_version, kind)
        return known

    def preferred_version(self, group: str) -> str | None:
        """The version of a group that the server prefers, such as kueue.x-k8s.io/v1beta2; None without the group."""
        try:
            found = self._call(Request("GET", f"/apis/{quote(group, safe='')}"))
        except NotFoundError:
            return None
        return str(found["preferredVersion"]["groupVersion"])

    def lists(self, resource: ResourceType) -> bool:
        """Whether the server's discovery lists the kind; a server that starts lists custom resources a moment later."""
        group, _, _ = resource.api_version.rpartition("/")
        if group:
            groups = self._call(Request("GET", "/apis")).get("groups") or ()
            if group not in {each.get("name") for each in groups}:
                return False
        try:
            self._discovered(resource.api_version, resource.kind)
        except RejectedError:
            return False
        return True

    def _discovered(self, api_version: str, kind: str) -> ResourceType:
        try:
            known = self._call(Request("GET", _path(api_version)))
        except NotFoundError:
            raise RejectedError(_missing(api_version, kind)) from None
        for each in known.get("resources") or ():
            if each.get("kind") == kind and "/" not in str(each.get("name")):
                return ResourceType(api_version, str(each["name"]), kind)
        raise RejectedError(_missing(api_version, kind))

    def _call(self, request: Request) -> Body:
        try:
            return self._transport(request)
        except StatusError as error:
            raise _error_of(error) from error


def _path(api_version: str, *parts: str) -> str:
    """A path of an API version. Its parts may come from users, so none may lead elsewhere."""
    group, _, version = api_version.rpartition("/")
    names = ("apis", group, version, *parts) if group else ("api", version, *parts)
    if not {"", ".", ".."}.isdisjoint(names):
        raise RejectedError(f"{'/'.join(names)!r} has a part that is no name")
    return "/" + "/".join(quote(each, safe="") for each in names)


def _missing(api_version: str, kind: str) -> str:
    return (
        f"the cluster has no kind {kind} in {api_version}; install {project_of(api_version)} with its definitions; the "
        "operator needs no restart"
    )


def _error_of(error: StatusError) -> Exception:
    if error.status == NOT_FOUND:
        return NotFoundError(error.message)
    if error.reason == "AlreadyExists":
        return AlreadyExistsError(error.message)
    if error.status == CONFLICT:
        return ConflictError(error.message)
    if "being terminated" in error.message or "exceeded quota" in error.message:
        return OperationError(str(error))
    if error.status in REJECTED:
        lacks_right = _MISSING_RIGHT.search(error.message)
        return RejectedError(error.message if lacks_right is None else f"{error.message}{_RIGHT_REMEDY}")
    return OperationError(str(error))


def status_to_apply(
    applied_to: RecurringTrainingJob | TrainingRecurrence | GPUPowerPolicy | FrequencyPlan,
    status: Mapping[str, Any],
    *,
    resource_version: str | None = None,
) -> dict[str, Any]:
    """The body of a status apply. It names only the writer's own fields, so that writers never undo each other's.

    Args:
        applied_to: The object as it was read. Its uid is a precondition: a new object of the same
            name is another one.
        status: The writer's fields.
        resource_version: Also a precondition, unless None.
    """
    metadata = {"name": applied_to.metadata.name, "uid": applied_to.metadata.uid}
    metadata |= {"namespace": applied_to.metadata.namespace} if applied_to.metadata.namespace else {}
    metadata |= {"resourceVersion": resource_version} if resource_version else {}
    return {"apiVersion": applied_to.api_version, "kind": applied_to.kind, "metadata": metadata, "status": status}
