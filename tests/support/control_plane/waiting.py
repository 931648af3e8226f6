"""Waiting for something to become true in a cluster: by watching, never by sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient

Found = TypeVar("Found")
Object = dict[str, Any]
_GONE = 410


class WaitedInVainError(AssertionError):
    """What a test waited for did not come true in time; the message ends with what was there instead."""


def wait_until(
    client: DynamicClient,
    *,
    api_version: str,
    kind: str,
    namespace: str | None = None,
    label_selector: str | None = None,
    field_selector: str | None = None,
    condition: Callable[[list[Object]], Found | None],
    what: str,
    timeout_seconds: float = 120.0,
) -> Found:
    """Watches the objects of a kind until `condition` of all of them, in order of name, is neither None nor False.

    Args:
        client: Whose rights are used.
        api_version: As in a manifest, `batch/v1`.
        kind: As in a manifest, `Job`.
        namespace: Where to look; every namespace when None.
        label_selector: Which objects.
        field_selector: Which objects.
        condition: Is called at first with what is there, and again after every change.
        what: The rest of the sentence "waited in vain for …".
        timeout_seconds: After that much real time it was in vain.

    Returns:
        What `condition` returned.

    Raises:
        WaitedInVainError: It did not come true; the message shows the objects.
    """
    resource = client.resources.get(api_version=api_version, kind=kind)
    selection = {"namespace": namespace, "label_selector": label_selector, "field_selector": field_selector}
    deadline = time.monotonic() + timeout_seconds
    objects: dict[tuple[str, str], Object] = {}
    while True:
        listed = resource.get(**selection).to_dict()
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
            raise WaitedInVainError(
                f"waited in vain for {what} ({timeout_seconds:.0f} s); there were {len(objects)} of kind {kind}:\n"
                + "\n".join(str(item) for item in _in_order(objects))
            )


def _watch(resource: Any, selection: dict[str, Any], version: str, deadline: float) -> Any:
    """The changes since `version`, until the deadline or until the server ends the stream."""
    remaining = max(1, round(deadline - time.monotonic()))
    try:
        for event in resource.watch(**selection, resource_version=version, timeout=remaining):
            yield {"type": event["type"], "object": event["raw_object"]}
    except ApiException as error:
        # The version is too old to go on from: the caller lists again.
        if error.status != _GONE:
            raise


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _in_order(objects: dict[tuple[str, str], Object]) -> list[Object]:
    return [objects[key] for key in sorted(objects)]
