"""Where the handlers put what they see: into the cache, and the job that it concerns before the scheduler."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pydantic import ValidationError

from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS
from wattloop_operator.cluster.informer.object_cache import Body, WatchedKind, identity
from wattloop_operator.domain.names import JobKey

logger = logging.getLogger(__name__)


class EventDispatcher:
    """Takes in what was seen.

    Args:
        kinds: The watched kinds.
        ask: Has a job looked at.
        job_deleted: Is told of each job that was deleted, with its uid.
        heartbeat: Is told that the watch of a kind is alive.
        all_listed: Is called once, when all objects of all kinds have been seen.
    """

    def __init__(
        self,
        kinds: tuple[WatchedKind, ...],
        *,
        ask: Callable[[JobKey], None],
        job_deleted: Callable[[JobKey, str], None],
        heartbeat: Callable[[str], None],
        all_listed: Callable[[], None],
    ) -> None:
        self.kinds = kinds
        self._ask = ask
        self._job_is_gone = job_deleted
        self._heartbeat = heartbeat
        self._open_for_work = all_listed
        self._opened = threading.Event()

    def seen(self, kind: WatchedKind, body: Body) -> None:
        """Take in an object; what is known already, such as the echo of an own write, asks for nothing."""
        self._heartbeat(kind.resource.kind)
        try:
            news = kind.put(body)
        except ValidationError as error:
            (namespace, name), _, _ = identity(body)
            logger.warning(
                "%s %s/%s is passed over, for it is not of the form that this version knows: %s",
                kind.resource.kind, namespace, name, error,
            )  # fmt: skip
            return
        if news:
            self._ask(kind.job_of(body))

    def gone(self, kind: WatchedKind, body: Body) -> None:
        """Take in that an object was deleted."""
        self._heartbeat(kind.resource.kind)
        kind.remove(body)
        key = kind.job_of(body)
        if kind.resource == RECURRING_TRAINING_JOBS:
            self._job_is_gone(key, identity(body)[1])
        else:
            self._ask(key)

    @property
    def opened(self) -> bool:
        """Whether all kinds have been listed once."""
        return self._opened.is_set()

    def jobs(self) -> list[JobKey]:
        """All jobs there are."""
        of_jobs = (kind for kind in self.kinds if kind.resource == RECURRING_TRAINING_JOBS)
        return [JobKey(*held.key) for kind in of_jobs for held in kind.object_store.all()]

    def everything_was_listed(self) -> None:
        """Note that all kinds have been listed once: what is not in the cache is not there."""
        if not self._opened.is_set():
            self._opened.set()
            self._open_for_work()
