"""Waits for a condition in a cluster by watching, not by polling."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import urllib3
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient

Found = TypeVar("Found")
Object = dict[str, Any]
_EXPIRED, _TOO_MANY_REQUESTS, _SERVER_ERROR = 410, 429, 500
_RETRY_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 240.0
"""How long a wait for something that takes seconds lasts at most, where nothing is promised.

A controller lists again up to a minute after an API server that was away has come back, and one that waits for it later
still; a busy machine takes its time beside that.
"""


class WaitTimeoutError(AssertionError):
    """A condition was not met in time; the message contains the objects."""


def wait_until(
    client: DynamicClient,
    kind: tuple[str, str],
    condition: Callable[[list[Object]], Found | None],
    what: str,
    *,
    namespace: str | None = None,
    label_selector: str | None = None,
    field_selector: str | None = None,
    timeout_seconds: float = LONGEST_WAIT_SECONDS,
) -> Found:
    """Watch the objects of a kind until `condition` returns neither None nor False.

    Args:
        client: A dynamic client.
        kind: API version and kind, such as `("batch/v1", "Job")`.
        condition: Called with all objects, sorted by name, at first and after every change.
        what: What the error message names.
        namespace: Namespace; None: all.
        label_selector: Label selector.
        field_selector: Field selector.
        timeout_seconds: Timeout in real time.

    Returns:
        The result of `condition`.

    Raises:
        WaitTimeoutError: The condition was not met in time.
    """
    api_version, name = kind
    resource = client.resources.get(api_version=api_version, kind=name)
    selection = {"namespace": namespace, "label_selector": label_selector, "field_selector": field_selector}
    deadline = time.monotonic() + timeout_seconds
    objects: dict[tuple[str, str], Object] = {}
    while True:
        listed = _list(resource, selection, deadline)
        objects = {_key(item): item for item in listed["items"]}
        found = condition(_in_order(objects))
        if found is not None and found is not False:
            return found
        version = listed["metadata"]["resourceVersion"]
        for event in _watch(resource, selection, version, deadline):
            if event["type"] == "DELETED":
                objects.pop(_key(event["object"]), None)
            else:
                objects[_key(event["object"])] = event["object"]
            found = condition(_in_order(objects))
            if found is not None and found is not False:
                return found
        if time.monotonic() >= deadline:
            raise WaitTimeoutError(
                f"timed out after {timeout_seconds:.0f} s waiting for {what}; {len(objects)} objects of kind {name}:\n"
                + "\n".join(str(item) for item in _in_order(objects))
            )


def _list(resource: Any, selection: dict[str, Any], deadline: float) -> Any:
    """The list of the objects; a request that a busy server cannot answer is repeated until the deadline."""
    while True:
        try:
            return resource.get(**selection).to_dict()
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            if not _is_temporary(error) or time.monotonic() >= deadline:
                raise
        time.sleep(_RETRY_SECONDS)


def _watch(resource: Any, selection: dict[str, Any], version: str, deadline: float) -> Any:
    """The changes since `version`, until the deadline or the end of the stream."""
    remaining = max(1, round(deadline - time.monotonic()))
    try:
        for event in resource.watch(**selection, resource_version=version, timeout=remaining):
            yield {"type": event["type"], "object": event["raw_object"]}
    except (ApiException, urllib3.exceptions.HTTPError) as error:
        # The caller lists again, also if the version is too old to resume from.
        if not _is_temporary(error) and getattr(error, "status", None) != _EXPIRED:
            raise


def _is_temporary(error: ApiException | urllib3.exceptions.HTTPError) -> bool:
    """Whether the server could not be reached, or had no time for the request."""
    if isinstance(error, ApiException):
        return error.status == _TOO_MANY_REQUESTS or (error.status or 0) >= _SERVER_ERROR
    return True


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _in_order(objects: dict[tuple[str, str], Object]) -> list[Object]:
    return [objects[key] for key in sorted(objects)]
