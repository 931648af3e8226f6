"""kopf's handlers: each parses nothing but the event, and hands the object on.

Index handlers see every object before the first event handler of any kind is called, so the first event means that all
kinds have been listed; kopf's own create, update and timer handlers are not used, since they keep their state in the
objects' annotations and act on edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import kopf

from wattloop_operator.cluster.api import ResourceType
from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.object_cache import WatchedKind

# Below the five minutes after which the server forgets versions that a watch could go on from.
SERVER_TIMEOUT_SECONDS = 300
CLIENT_TIMEOUT_SECONDS = 310


def registry_of(dispatcher: EventDispatcher, login: Callable[[], Mapping[str, Any]]) -> kopf.OperatorRegistry:
    """The handlers of all watched kinds.

    Args:
        dispatcher: Takes in what they see.
        login: Gives the credentials, read anew at each login.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def log_in(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(**login())

    for kind in dispatcher.kinds:
        _register(registry, dispatcher, kind)
    return registry


def settings_of(kinds: tuple[WatchedKind, ...]) -> kopf.OperatorSettings:
    """Settings of kopf: watches that end and begin anew, of our own objects alone, no limit on workers, no posting."""
    settings = kopf.OperatorSettings()
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = CLIENT_TIMEOUT_SECONDS
    settings.queueing.worker_limit = None
    settings.posting.enabled = False
    # Neither namespaces nor custom resource definitions are watched: the operator has no right to, and no need.
    settings.scanning.disabled = True
    settings.peering.standalone = True
    for kind in kinds:
        if kind.labels:
            settings.watching.label_selectors[_address(kind.resource)] = kind.labels
    return settings


def _register(registry: kopf.OperatorRegistry, dispatcher: EventDispatcher, kind: WatchedKind) -> None:
    address, name = _address(kind.resource), kind.resource.plural

    @kopf.index(*address, id=f"{name}_seen", registry=registry)
    async def seen(body: kopf.Body, **_: Any) -> None:
        dispatcher.seen(kind, dict(body))

    @kopf.on.event(*address, id=f"{name}_changed", registry=registry)
    async def changed(event: kopf.RawEvent, **_: Any) -> None:
        dispatcher.everything_was_listed()
        if event["type"] == "DELETED":
            dispatcher.gone(kind, event["object"])


def _address(resource: ResourceType) -> tuple[str, str, str]:
    group, _, version = resource.api_version.rpartition("/")
    return group, version, resource.plural
