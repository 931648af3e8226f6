"""kopf's handlers: each passes the event's object to the dispatcher.

kopf calls index handlers for every object before it calls the first event handler of any kind, so
the first event means that all kinds have been listed. kopf's create, update and timer handlers are
not used: they keep state in the objects' annotations and act on edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import kopf

from wattloop_operator.cluster.api import ResourceType
from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.object_cache import WatchedKind

# Within the five minutes for which the server keeps the versions that a watch can resume from.
SERVER_TIMEOUT_SECONDS = 300
CLIENT_TIMEOUT_SECONDS = 310


def registry_of(dispatcher: EventDispatcher, login: Callable[[], Mapping[str, Any]]) -> kopf.OperatorRegistry:
    """The handlers of all watched kinds.

    Args:
        dispatcher: Receives the objects.
        login: Returns the current credentials; called at each login.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def log_in(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(**login())

    for kind in dispatcher.kinds:
        _register(registry, dispatcher, kind)
    return registry


def settings_of(kinds: tuple[WatchedKind, ...]) -> kopf.OperatorSettings:
    """Kopf's settings: renewed watches of Wattloop's objects, unlimited workers, no Events."""
    settings = kopf.OperatorSettings()
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = CLIENT_TIMEOUT_SECONDS
    settings.queueing.worker_limit = None
    settings.posting.enabled = False
    # The operator has neither the right nor the need to watch namespaces and custom resource
    # definitions.
    settings.scanning.disabled = True
    settings.peering.standalone = True
    for kind in kinds:
        if kind.labels:
            settings.watching.label_selectors[_address(kind.resource)] = kind.labels
    return settings


def _register(registry: kopf.OperatorRegistry, dispatcher: EventDispatcher, kind: WatchedKind) -> None:
    address, name = _address(kind.resource), kind.resource.plural

    @kopf.index(*address, id=f"{name}_indexed", registry=registry)
    async def index(body: kopf.Body, **_: Any) -> None:
        dispatcher.on_object(kind, dict(body))

    @kopf.on.event(*address, id=f"{name}_changed", registry=registry)
    async def event_handler(event: kopf.RawEvent, **_: Any) -> None:
        dispatcher.on_listed()
        if event["type"] == "DELETED":
            dispatcher.on_deleted(kind, event["object"])


def _address(resource: ResourceType) -> tuple[str, str, str]:
    group, _, version = resource.api_version.rpartition("/")
    return group, version, resource.plural
