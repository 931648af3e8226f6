"""Plans the pipelines of the store that wait for it: on the leader alone, one at a time, fair between jobs.

Nothing waits in memory: the planner reads a pipeline when its turn comes.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Self

from cachetools import LRUCache, TTLCache

from wattloop.errors import OperationError
from wattloop.threads import WatchedThread
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineFrontier, PipelineKey, PipelineState
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest, planning_request, profile_digest
from wattloop_operator.reconcile.pipeline.rank_directives import decided
from wattloop_operator.reporting.interfaces import UnknownRecurrenceError
from wattloop_operator.store.pipeline_store import Pipelines, WaitingPipeline

POLL_SECONDS = 1.0
# What could not be planned, for example because its attempt has ended, gives way to the others for so long.
REST_SECONDS = 30.0
# Namespaces and jobs of which the last turn is known.
MAX_TURNS = 10_000

logger = logging.getLogger(__name__)

Plan = Callable[[PlanningRequest, datetime], PipelineFrontier]
StateOf = Callable[[str, str], PipelineState | None]
"""What a recurrence says of its pipeline; None if its attempt has ended. Raises OperationError or
UnknownRecurrenceError."""


class PipelinePlanner:
    """Plans in a thread of its own; a context manager, which starts and ends it.

    Args:
        store: The pipelines' store.
        plan: Plans a pipeline.
        state_of: What a recurrence says of its pipeline, by namespace and name.
        utc_now: The time, with a time zone.
        leads: Whether this process plans; the other replicas of the operator wait.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        store: Pipelines,
        plan: Plan,
        state_of: StateOf,
        utc_now: Callable[[], datetime],
        *,
        leads: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._plan = plan
        self._state_of = state_of
        self._utc_now = utc_now
        self._leads = leads
        # Number of the last turn of a namespace and of a job.
        self._turns: LRUCache[str, int] = LRUCache(MAX_TURNS)
        self._turn = 0
        self._resting: TTLCache[PipelineKey, bool] = TTLCache(MAX_TURNS, REST_SECONDS, clock)
        self._ending = threading.Event()
        self._thread = WatchedThread(self._run, "pipeline-planner")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not waited for: what is being planned is lost, and the planner's process ends with this one.
        self._thread.release()
        self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(POLL_SECONDS):
            while not self._ending.is_set() and self._leads() and self.plan_next():
                pass

    def plan_next(self) -> bool:
        """Plan the pipeline whose turn it is; returns whether one waited."""
        chosen: WaitingPipeline | None = None
        try:
            waiting = [each for each in self._store.waiting(self._utc_now()) if each.key not in self._resting]
            if not waiting:
                return False
            chosen = min(waiting, key=self._last_turns)
            self._turn += 1
            self._turns[f"namespace {chosen.namespace}"] = self._turns[f"job {chosen.key.job_uid}"] = self._turn
            self._plan_stored(chosen)
        except Exception as error:  # what one tenant's values lead to ends nothing of another's
            if isinstance(error, (OperationError, UnknownRecurrenceError)):
                logger.warning("a pipeline is planned later: %s", error)
            else:
                logger.exception("unexpected failure of the planner for %s", chosen)
            if chosen is not None:
                self._resting[chosen.key] = True
        return chosen is not None

    def _last_turns(self, waiting: WaitingPipeline) -> tuple[int, int]:
        """Of the namespace, and in it of the job."""
        job_uid = waiting.key.job_uid
        return self._turns.get(f"namespace {waiting.namespace}", 0), self._turns.get(f"job {job_uid}", 0)

    def _plan_stored(self, chosen: WaitingPipeline) -> None:
        new = self._state_of(chosen.namespace, chosen.name)
        if new is None:
            self._resting[chosen.key] = True
            return
        now = self._utc_now()
        # The row may say what was so before the job changed.
        known = self._store.change(new, None, lambda state: state, lambda state: decided(state, now), now)
        if not known.state.waits_for_plan:
            return
        frontier = self._plan(planning_request(known.state), now)
        if self._ending.is_set():
            return
        now = self._utc_now()

        def with_frontier(state: PipelineState) -> PipelineState:
            # The profile may have changed since the planner began.
            is_current = state.profile is not None and state.ranks and profile_digest(state) == frontier.profile_digest
            return replace(state, frontier=frontier) if is_current else state

        self._store.change(new, known, with_frontier, lambda state: decided(state, now), now)
