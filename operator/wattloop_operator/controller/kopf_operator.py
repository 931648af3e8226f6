"""Runs kopf in a thread, and runs it again when it ends: it ends all watches at an error that it does not foresee.

Before each run the kinds that kopf watches are listed with bounds, so that all objects are known before work starts,
and a job that is nested too deep for kopf's parser is named and left out of kopf's watch.
"""

import asyncio
import logging
import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import kopf

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, ClusterApi, NotFoundError, RejectedError
from wattloop_operator.cluster.informer.informer import Informer
from wattloop_operator.cluster.informer.watched_kinds import EventDispatcher
from wattloop_operator.controller.kopf_handlers import KopfMemo
from wattloop_operator.problem_log import ProblemLog

logger = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
# A run of kopf that lasts longer has worked.
SHORT_SECONDS = 60.0
MAX_SHORT_RUNS = 5
# kopf gives its watches five seconds, then it cancels them.
ENDING_SECONDS = 7.0
CANCEL_AGAIN_SECONDS = 1.0
MAX_ENDING_SECONDS = 30.0


class KopfOperator:
    """kopf with the handlers of `kopf_handlers`."""

    def __init__(
        self,
        informers: Sequence[Informer],
        dispatcher: EventDispatcher,
        api: ClusterApi,
        *,
        login: Callable[[], Mapping[str, Any]],
        namespaces: Sequence[str] = (),
    ) -> None:
        self._informers = informers
        self._dispatcher = dispatcher
        self._api = api
        self._login = login
        self._namespaces = namespaces
        self._problems = ProblemLog(logger)
        self._stopping = threading.Event()
        self._running: KopfMemo | None = None
        self._kinds = ", ".join(dict.fromkeys(informer.kind.resource.kind for informer in informers))
        self._short_runs = 0
        self._problem = ""

    def run(self) -> None:
        """List and watch until `stop` is called, or until the watches end again and again; see `problem`."""
        while self._list_all():
            self._run_kopf()
        self._stopping.wait()

    def stop(self) -> None:
        """End the watches, and let `run` return."""
        self._stopping.set()
        if self._running is not None:
            self._running.stop.set()

    def problem(self) -> str:
        """Why the watches have ended for good; empty if they have not."""
        ending_at = None if self._running is None else self._running.ending_at
        if ending_at is not None and time.monotonic() - ending_at > MAX_ENDING_SECONDS:
            return f"the watches of {self._kinds} have ended, and kopf has not; its log says why"
        return self._problem

    def watch_again(self) -> None:
        """Run kopf again if it leaves a job out that it can read by now, or that is gone."""
        running = self._running
        if running is not None and not running.excluded <= self._unreadable():
            running.stop.set()

    def _list_all(self) -> bool:
        while not self._stopping.is_set() and not self._problem:
            try:
                self._check_discovery()
                for informer in self._informers:
                    informer.list_objects()
            except (OperationError, RejectedError, NotFoundError) as error:
                self._problems.met("the watches wait", str(error))
            except Exception:
                logger.exception("unexpected failure of a list; it is repeated in %.0f s", RETRY_SECONDS)
            else:
                self._problems.ended("the watches wait")
                return not self._stopping.is_set()
            self._stopping.wait(RETRY_SECONDS)
        return False

    def _check_discovery(self) -> None:
        """Check that the server's discovery has the kinds: kopf reads it once, and never watches one that is missing.

        Raises:
            OperationError: The API server does not answer, or does not list a kind, as for a moment after its start.
        """
        kinds = [informer.kind.resource for informer in self._informers]
        missing = [f"{each.plural} of {each.api_version}" for each in dict.fromkeys(kinds) if not self._api.lists(each)]
        if missing:
            raise OperationError(f"the API server does not list {', '.join(missing)}")

    def _run_kopf(self) -> None:
        memo = KopfMemo(self._dispatcher, self._login, self._unreadable())
        before = self._running
        if before is not None and memo.excluded - before.excluded:
            # What ended the run before is left out now.
            self._short_runs = 0
        self._running = memo
        if self._stopping.is_set():
            return
        started = time.monotonic()
        try:
            asyncio.run(self._operate(memo))
        except Exception as error:  # noqa: BLE001  it is logged, or ends the process
            lasted_seconds = time.monotonic() - started
            self._short_runs = self._short_runs + 1 if lasted_seconds < SHORT_SECONDS else 1
            problem = f"the watches of {self._kinds} have ended: {type(error).__name__}: {error}"
            if self._short_runs >= MAX_SHORT_RUNS:
                self._problem = problem
            else:
                logger.warning("%s; they begin again in %.0f s", problem, RETRY_SECONDS)
                self._stopping.wait(RETRY_SECONDS)
        memo.ending_at = None

    async def _operate(self, memo: KopfMemo) -> None:
        again = asyncio.create_task(_cancel_again(memo.ending, asyncio.current_task()))
        await kopf.operator(
            memo=memo,
            stop_flag=memo.stop,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            standalone=True,
            # kopf's default contains the user's name, and a container's user may have none. The type is a private
            # NewType of str.
            identity=platform.node(),  # type: ignore[arg-type]
        )
        again.cancel()

    def _unreadable(self) -> frozenset[str]:
        jobs = self._dispatcher.kind(RECURRING_TRAINING_JOBS).object_store
        return frozenset(name for _, name in jobs.unreadable())


async def _cancel_again(ending: asyncio.Event, operator: asyncio.Task[None] | None) -> None:
    """Cancel what kopf has cancelled, until the operator has ended.

    kopf cancels a watch once, and at the same time the task that tells the watch of pauses. If that task ends first,
    a watch that waits for a response takes its own end for a pause, and watches on.
    """
    await ending.wait()
    await asyncio.sleep(ENDING_SECONDS)
    while True:
        for task in asyncio.all_tasks() - {operator, asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(CANCEL_AGAIN_SECONDS)
