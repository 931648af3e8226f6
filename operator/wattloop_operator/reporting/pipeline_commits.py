"""Commits the messages of pipelines in groups: one transaction for all that arrive while the one before is written.

A thousand ranks register at once, and a durable write takes milliseconds. Each message waits for its group only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from types import TracebackType
from typing import Protocol, Self

from cachetools import TTLCache

from wattloop.errors import OperationError
from wattloop.pipeline.plan_messages import Directive, RankRegistration, RankReport, StragglerNotice
from wattloop.threads import WatchedThread
from wattloop_operator.memory_shares import REMEMBERED_PIPELINES
from wattloop_operator.reconcile.pipeline.held_bytes import given_bytes, registration_bytes, report_bytes, state_bytes
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey, PipelineState
from wattloop_operator.reconcile.pipeline.rank_directives import decided, directive_for
from wattloop_operator.reconcile.pipeline.registrations import Registrar, RegistrationConflictError
from wattloop_operator.reconcile.pipeline.reports import ImplausibleReportError, check_plausible, with_report
from wattloop_operator.reconcile.pipeline.straggling import with_notice
from wattloop_operator.reporting.message_groups import MessageGroups
from wattloop_operator.store.pipeline_store import Change, StoredPipeline, WaitingPipeline

# A pipeline that was silent for so long, or is larger than all may be, is read from the store again.
KNOWN_SECONDS = 300.0
CLEANUP_INTERVAL = timedelta(hours=1)

logger = logging.getLogger(__name__)


# How long a message waits for others of its group. Reports are not urgent, and each commit costs a few milliseconds.
REGISTRATION_WAIT_SECONDS = 0.02
REPORT_WAIT_SECONDS = 0.2


class PipelineStore(Protocol):
    """Stores pipelines; see `wattloop_operator.store.pipeline_store.Pipelines`."""

    def change(
        self, new: PipelineState, known: StoredPipeline | None, merge: Change, decide: Change, now: datetime
    ) -> StoredPipeline:
        """Change a pipeline in one transaction, durably when this returns.

        Raises:
            OperationError: The write failed for now.
        """
        ...

    def waiting(self, now: datetime) -> list[WaitingPipeline]:
        """The pipelines that wait for the planner.

        Raises:
            OperationError: The database failed.
        """
        ...

    def delete_old(self, now: datetime) -> int:
        """Delete the pipelines and profiles that are no longer used; returns the number of pipelines.

        Raises:
            OperationError: The deletion failed for now.
        """
        ...


@dataclass(frozen=True)
class ReportOfRank:
    """A report and the rank in its path."""

    rank: int
    report: RankReport


Message = RankRegistration | ReportOfRank | StragglerNotice


@dataclass(frozen=True)
class _Waiting:
    new: PipelineState
    message: Message
    answer: asyncio.Future[Directive | None]


def _held_bytes(message: Message) -> int:
    if isinstance(message, RankRegistration):
        return registration_bytes(message)
    return report_bytes(message.report) if isinstance(message, ReportOfRank) else 0


Answer = Directive | None | Exception
Answers = list[tuple[asyncio.Future[Directive | None], Answer]]


class PipelineCommits:
    """Merges, decides and stores in one thread; a context manager, which starts and ends it.

    Args:
        store: The pipelines' store.
        utc_now: The time, with a time zone.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        store: PipelineStore,
        utc_now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._utc_now = utc_now
        self._clock = clock
        self._known: TTLCache[PipelineKey, StoredPipeline] = TTLCache(
            REMEMBERED_PIPELINES, KNOWN_SECONDS, clock, lambda known: state_bytes(known.state)
        )
        # Attempts that have ended since the last group.
        self._ended: set[PipelineKey] = set()
        self._arrived = threading.Condition()
        self._groups: MessageGroups[PipelineKey, _Waiting] = MessageGroups(clock)
        self._ending = False
        self._thread = WatchedThread(self._run, "pipeline-commits")
        self._cleaned_up_at: datetime | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.release()
        with self._arrived:
            self._ending = True
            self._arrived.notify()
        self._thread.join()

    async def committed(self, new: PipelineState, message: Message) -> Directive | None:
        """Commit a message; returns its directive once it is durable.

        Args:
            new: The state of a pipeline of which nothing is stored, as its recurrence gives it now.
            message: The message.

        Raises:
            RegistrationConflictError: A registration contradicts another one.
            TooManyRequestsError: Too many messages wait.
            OperationError: The service ends, or the write failed for now.
        """
        answer: asyncio.Future[Directive | None] = asyncio.get_running_loop().create_future()
        self._submit(_Waiting(new, message, answer))
        return await answer

    def _submit(self, waiting: _Waiting) -> None:
        new, is_report = waiting.new, isinstance(waiting.message, ReportOfRank)
        wait_seconds = REPORT_WAIT_SECONDS if is_report else REGISTRATION_WAIT_SECONDS
        with self._arrived:
            if self._ending:
                raise OperationError("the plan service ends; send the message again")
            first = self._groups.first_due
            # All messages of a pipeline share the plan of its user.
            given = 0 if new.key in self._groups else given_bytes(new.job_plan)
            size = _held_bytes(waiting.message) + given
            self._groups.add(new.key, f"recurrence {new.namespace}/{new.name}", waiting, size, wait_seconds)
            if self._groups.first_due < first:
                self._arrived.notify()

    def _run(self) -> None:
        while True:
            with self._arrived:
                while not self._ending and not self._ended and (left := self._groups.first_due - self._clock()) > 0:
                    self._arrived.wait(min(left, KNOWN_SECONDS) if self._known else left if left < inf else None)
                    self._known.expire()
                ended, self._ended = self._ended, set()
                groups = self._groups.take(everything=self._ending)
                if not groups and self._ending:
                    return
            for key in ended:
                self._known.pop(key, None)
            for key, group in groups.items():
                began = self._clock()
                self._commit(group)
                with self._arrived:
                    self._groups.pause(key, self._clock() - began)
            self._clean_up()

    def _commit(self, group: Sequence[_Waiting]) -> None:
        """Commit a group; whatever fails is the answer to its messages, and those of other pipelines follow."""
        new, now = group[-1].new, self._utc_now()
        try:
            _deliver(self._committed(group, now))
        except Exception as error:
            if not isinstance(error, OperationError):
                where = f"{new.namespace}/{new.name}"
                logger.exception("unexpected failure of the plan service for %s", where)
            self._known.pop(new.key, None)
            _deliver([(waiting.answer, error) for waiting in group])

    def _committed(self, group: Sequence[_Waiting], now: datetime) -> Answers:
        new = group[-1].new
        key, rejected = new.key, dict[int, RegistrationConflictError]()

        def merge(state: PipelineState) -> PipelineState:
            rejected.clear()
            return _merged(state, group, now, rejected)

        known = self._store.change(new, self._known.get(key), merge, lambda state: decided(state, now), now)
        self._remember(key, known)
        return [
            (waiting.answer, rejected.get(place) or _guarded_answer(known.state, waiting, now))
            for place, waiting in enumerate(group)
        ]

    def _remember(self, key: PipelineKey, known: StoredPipeline) -> None:
        ranks = known.state.ranks.values()
        has_ended = len(ranks) == known.state.expected_ranks and all(rank.finished for rank in ranks)
        self._known.pop(key, None)
        if ranks and not has_ended and state_bytes(known.state) <= REMEMBERED_PIPELINES:
            self._known[key] = known

    def forget(self, key: PipelineKey) -> None:
        """Drop what is remembered of an attempt that has ended; from any thread."""
        with self._arrived:
            self._ended.add(key)
            self._arrived.notify()

    def _clean_up(self) -> None:
        now = self._utc_now()
        if self._cleaned_up_at is not None and now - self._cleaned_up_at < CLEANUP_INTERVAL:
            return
        self._cleaned_up_at = now
        try:
            self._store.delete_old(now)
        except OperationError as error:
            logger.warning("old pipelines are not deleted now: %s", error)
        except Exception:  # the pipelines' messages follow
            logger.exception("unexpected failure of the deletion of old pipelines")


def _deliver(answers: Answers) -> None:
    """Give the answers of a group to the event loops that wait for them, each of which is woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, Answers] = defaultdict(list)
    for future, answer in answers:
        by_loop[future.get_loop()].append((future, answer))
    for loop, mine in by_loop.items():
        # A loop that is closed has nobody who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, mine)


def _resolve(answers: Answers) -> None:
    for future, answer in answers:
        # A request whose client is gone may be cancelled.
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _merged(
    state: PipelineState,
    group: Sequence[_Waiting],
    now: datetime,
    rejected: dict[int, RegistrationConflictError],
) -> PipelineState:
    registrar = Registrar(state, now)
    for place, waiting in enumerate(group):
        if isinstance(waiting.message, RankRegistration):
            try:
                registrar.merge(waiting.message)
            except RegistrationConflictError as error:
                rejected[place] = error
    state = registrar.state
    for place, waiting in enumerate(group):
        match waiting.message:
            case ReportOfRank(rank, report):
                try:
                    check_plausible(state, rank, report)
                except ImplausibleReportError as error:
                    rejected[place] = error
                    continue
                state = with_report(state, rank, report, now)
            case StragglerNotice() as notice:
                state = with_notice(state, notice, now)
    return state


def _guarded_answer(state: PipelineState, waiting: _Waiting, now: datetime) -> Answer:
    """The answer to one message; what fails in it is the answer to that message alone."""
    try:
        return _answer(state, waiting.message, now)
    except Exception as error:
        logger.exception("unexpected failure of an answer of the plan service for %s/%s", state.namespace, state.name)
        return error


def _answer(state: PipelineState, message: Message, now: datetime) -> Directive | None:
    match message:
        case RankRegistration(process=process, rank=rank):
            return directive_for(state, rank, process, now)
        case ReportOfRank(rank, report):
            return directive_for(state, rank, report.process, now)
        case _:
            return None
