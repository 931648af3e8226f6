"""The operator as kopf sees it: what follows when somebody writes a job, a frequency plan or a power policy.

kopf lists and watches these three kinds and calls a handler at each event. A handler stores the object in the cache and
puts a key into a queue; workers compare the object with what runs. docs/internals/operator.md has the way of an event.
Handlers of kopf that act on edges (create, update, timer) would keep their state in the objects' annotations.

`kopf.operator(memo=...)` passes a `KopfMemo` to each handler.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import kopf

from wattloop_operator.cluster.api import FREQUENCY_PLANS, GPU_POWER_POLICIES, RECURRING_TRAINING_JOBS, ResourceType
from wattloop_operator.cluster.informer.watched_kinds import EventDispatcher

# The server keeps the versions that a watch can resume from for five minutes.
SERVER_TIMEOUT_SECONDS = 300
CLIENT_TIMEOUT_SECONDS = 310
CONNECT_TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 2.0
# kopf parses a page whole, and holds each object of it for as long as the worker of the object waits for another event.
LIST_OBJECTS = 20
WORKER_IDLE_SECONDS = 0.1


@dataclass
class KopfMemo:
    """What the handlers of one run of kopf use.

    Attributes:
        login: Returns the current credentials, as the fields of a `kopf.ConnectionInfo`.
        excluded: Names of jobs that are nested too deep for kopf's parser; kopf does not watch them.
        ending: Whether the run has begun to end, for what waits in kopf's event loop.
        ending_at: When the run began to end, on the monotonic clock; None: it has not.
    """

    dispatcher: EventDispatcher
    login: Callable[[], Mapping[str, Any]]
    excluded: frozenset[str] = frozenset()
    stop: threading.Event = field(default_factory=threading.Event)
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    ending_at: float | None = None

    def receive(self, resource: ResourceType, event: kopf.RawEvent) -> None:
        """Store or remove the object of an event; a version that is new puts a key into a queue."""
        kind = self.dispatcher.kind(resource)
        if event["type"] == "DELETED":
            self.dispatcher.on_deleted(kind, event["object"])
        else:
            self.dispatcher.on_read(kind, event["object"])


def address(resource: ResourceType) -> tuple[str, str, str]:
    """Group, version and plural of a kind."""
    group, _, version = resource.api_version.rpartition("/")
    return group, version, resource.plural


class EndlessRetries:
    """The waits between attempts of a request: an API server that is away for long ends no watch."""

    def __iter__(self) -> Iterator[float]:
        """The waits of one request."""
        return itertools.repeat(RETRY_SECONDS)


@kopf.on.startup()
async def configure(settings: kopf.OperatorSettings, memo: KopfMemo, **_: Any) -> None:
    """Renew watches within what the server keeps, retry without end, and write nothing to the objects."""
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = CLIENT_TIMEOUT_SECONDS
    settings.watching.chunk_size = LIST_OBJECTS
    settings.networking.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.networking.error_backoffs = EndlessRetries()
    settings.queueing.idle_timeout = WORKER_IDLE_SECONDS
    settings.posting.enabled = False
    # The operator has neither the right nor the need to watch namespaces and custom resource definitions.
    settings.scanning.disabled = True
    if memo.excluded:
        selector = ",".join(f"metadata.name!={name}" for name in sorted(memo.excluded))
        settings.watching.field_selectors[address(RECURRING_TRAINING_JOBS)] = selector


@kopf.on.login()
async def log_in(memo: KopfMemo, **_: Any) -> kopf.ConnectionInfo:
    """Log in as the operator's service account, whose token Kubernetes rotates."""
    return kopf.ConnectionInfo(**memo.login())


@kopf.on.event(*address(RECURRING_TRAINING_JOBS))
async def job_event(event: kopf.RawEvent, memo: KopfMemo, **_: Any) -> None:
    """Put the job into the cache, or remove a deleted one, and its key into the work queue."""
    memo.receive(RECURRING_TRAINING_JOBS, event)


@kopf.on.event(*address(FREQUENCY_PLANS))
async def plan_event(event: kopf.RawEvent, memo: KopfMemo, **_: Any) -> None:
    """Put the plan into the cache, or remove a deleted one, and have the statuses of plans written."""
    memo.receive(FREQUENCY_PLANS, event)


@kopf.on.event(*address(GPU_POWER_POLICIES))
async def policy_event(event: kopf.RawEvent, memo: KopfMemo, **_: Any) -> None:
    """Put the policy into the cache, or remove a deleted one, and have the statuses of policies written."""
    memo.receive(GPU_POWER_POLICIES, event)


@kopf.on.cleanup()
async def release(memo: KopfMemo, **_: Any) -> None:
    """Note the end, which may be that of a watch, and end the wait for the stop flag, which would outlast it."""
    memo.ending_at = time.monotonic()
    memo.ending.set()
    memo.stop.set()
