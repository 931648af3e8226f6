"""What a failed test of a cluster prints: the ends of its servers' logs, and the objects of its namespace."""

import subprocess
from collections.abc import Iterator
from typing import Any

import urllib3
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ResourceNotFoundError

from support.control_plane.commands import ClusterCommand, CommandError
from support.control_plane.processes import ServerProcess
from support.control_plane.waiting import Object

LOG_LINES = 60
_REQUEST_SECONDS = 10
_COMMAND_SECONDS = 30.0
# In the order of their ownership: each creates the next.
_KINDS = (
    ("wattloop.dev/v1alpha1", "RecurringTrainingJob"),
    ("wattloop.dev/v1alpha1", "TrainingRecurrence"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
)
_SHOWN_METADATA = ("generation", "creationTimestamp", "deletionTimestamp", "finalizers")

Section = tuple[str, str]


def server_sections() -> Iterator[Section]:
    """Title and text for each server process that has not been stopped."""
    for process in ServerProcess.not_stopped():
        ended = f", ended with {process.exit_code}" if process.ended else ""
        yield f"{process.name} (process {process.pid}{ended}): the end of {process.log}", process.log_tail(LOG_LINES)


def pod_sections(kubectl: ClusterCommand, namespace: str) -> Iterator[Section]:
    """Title and text for each pod of a namespace with parts of Wattloop: the end of its containers' logs."""
    try:
        names = kubectl("get", "pods", "--output=name", namespace=namespace, timeout=_COMMAND_SECONDS).split()
    except (CommandError, subprocess.TimeoutExpired) as error:
        yield f"pods of {namespace}", str(error)
        return
    for name in names:
        for which in ("", "--previous"):
            options = [name, "--all-containers", "--prefix", f"--tail={LOG_LINES}", *filter(None, [which])]
            try:
                text = kubectl("logs", *options, namespace=namespace, timeout=_COMMAND_SECONDS)
            except (CommandError, subprocess.TimeoutExpired) as error:
                # Most containers have no previous one.
                if not which:
                    yield f"{namespace} {name}", str(error)
            else:
                yield f"{namespace} {name} {which}", text


def namespace_sections(cluster: DynamicClient, namespace: str) -> Iterator[Section]:
    """Title and text for the objects of each kind in a namespace, and for its Events."""
    for api_version, kind in _KINDS:
        yield f"{kind}s of {namespace}", "\n".join(map(_object_line, _listed(cluster, api_version, kind, namespace)))
    events = sorted(_listed(cluster, "v1", "Event", namespace), key=_time_of_event)
    yield f"Events of {namespace}", "\n".join(map(_event_line, events))


def _listed(cluster: DynamicClient, api_version: str, kind: str, namespace: str) -> list[Object]:
    """The objects; one that contains the error if they cannot be listed, because a report must not fail."""
    try:
        resource = cluster.resources.get(api_version=api_version, kind=kind)
        items: list[Object] = resource.get(namespace=namespace, _request_timeout=_REQUEST_SECONDS).to_dict()["items"]
    except (ApiException, urllib3.exceptions.HTTPError, ResourceNotFoundError) as error:
        return [{"metadata": {"name": f"cannot be listed: {error}"}}]
    return items


def _object_line(item: Object) -> str:
    metadata = {name: item["metadata"][name] for name in _SHOWN_METADATA if name in item["metadata"]}
    return f"{item['metadata']['name']}: {metadata} status: {item.get('status')}"


def _time_of_event(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))


def _event_line(event: Object) -> str:
    about: dict[str, Any] = event.get("involvedObject") or {}
    what = f"{about.get('kind')}/{about.get('name')} {event.get('type')} {event.get('reason')}"
    return f"{_time_of_event(event)} {what} x{event.get('count') or 1}: {event.get('message')}"
