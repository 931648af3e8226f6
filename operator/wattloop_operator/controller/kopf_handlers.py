"""kopf's registry and settings: it lists and watches the kinds, and `watch_session` takes their objects.

kopf's create, update and timer handlers are not used: they keep state in the objects' annotations and act on edges. Its
indices are not used either: they make all objects wait for each other while kinds are listed. Its event handlers would
take half of the operator's processor time: each object has a worker, which waits for further events of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import kopf

from wattloop_operator.cluster.api import ResourceType
from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.object_cache import WatchedKind
from wattloop_operator.controller.watch_session import RETRY_SECONDS, OpenWatches, watch_session

# Within the five minutes for which the server keeps the versions that a watch can resume from.
SERVER_TIMEOUT_SECONDS = 300
CLIENT_TIMEOUT_SECONDS = 310
CONNECT_TIMEOUT_SECONDS = 5.0
# With more, a page of the largest objects would be the larger part of the operator's memory.
LIST_OBJECTS = 10


class EndlessRetries:
    """kopf's waits between requests that fail: with a last one, an API server that is away for long ends a watch."""

    def __iter__(self) -> Iterator[float]:
        """The waits of one request."""
        return itertools.repeat(RETRY_SECONDS)


def registry_of(
    dispatcher: EventDispatcher, login: Callable[[], Mapping[str, Any]], watches: OpenWatches
) -> kopf.OperatorRegistry:
    """The handlers of all watched kinds.

    Args:
        dispatcher: Receives the objects.
        login: Returns the current credentials; called at each login.
        watches: Records the requests of each watch.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.AiohttpSession:
        return watch_session(login(), watches, dispatcher)

    # kopf watches the kinds that have a handler. No object reaches it.
    for kind in dispatcher.kinds:
        kopf.on.event(*_address(kind.resource), id=kind.resource.plural, registry=registry)(_ignore)
    return registry


async def _ignore(**_: Any) -> None:
    pass


def settings_of(kinds: tuple[WatchedKind, ...]) -> kopf.OperatorSettings:
    """Kopf's settings: renewed watches of Wattloop's objects, unlimited workers, no Events."""
    settings = kopf.OperatorSettings()
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = CLIENT_TIMEOUT_SECONDS
    settings.watching.chunk_size = LIST_OBJECTS
    settings.networking.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.networking.error_backoffs = EndlessRetries()
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


def _address(resource: ResourceType) -> tuple[str, str, str]:
    group, _, version = resource.api_version.rpartition("/")
    return group, version, resource.plural
