"""Commits the messages of pipelines in groups: one transaction for all that arrive while the one before is written.

A thousand ranks register at once, and a durable write takes milliseconds. Each message waits for its group only.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from types import TracebackType
from typing import Self

from cachetools import TTLCache

from wattloop.errors import OperationError
from wattloop.pipeline.plan_messages import Directive, RankRegistration, RankReport, StragglerNotice
from wattloop.threads import WatchedThread
from wattloop_operator.memory_shares import REMEMBERED_PIPELINES, WAITING_MESSAGES
from wattloop_operator.reconcile.pipeline.held_bytes import BYTES_OF_RANK, given_bytes, message_bytes, state_bytes
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey, PipelineState
from wattloop_operator.reconcile.pipeline.rank_directives import decided, directive_for
from wattloop_operator.reconcile.pipeline.registrations import Registrar, RegistrationConflictError
from wattloop_operator.reconcile.pipeline.reports import check_plausible, with_report
from wattloop_operator.reconcile.pipeline.straggling import with_notice
from wattloop_operator.reporting.interfaces import TooManyRequestsError
from wattloop_operator.store.pipeline_store import Pipelines, StoredPipeline

# A pipeline that was silent for so long, or is larger than all may be, is read from the store again.
KNOWN_SECONDS = 300.0
CLEANUP_INTERVAL = timedelta(hours=1)
# How long a message waits for others of its group. Reports are not urgent, and each commit costs a few milliseconds.
REGISTRATION_WAIT_SECONDS = 0.02
REPORT_WAIT_SECONDS = 0.2
# What waits for a slow database; one pipeline leaves half of it to the others. The longest message holds 7 MB.
MAX_WAITING_BYTES_OF_PIPELINE = WAITING_MESSAGES // 2
# After a group of a pipeline, its next one waits this many times as long as that one took. So groups grow when messages
# arrive faster than they are committed, and a job with a large profile leaves the others their time.
PAUSE_PER_SECOND = 2.0
MAX_PAUSE_SECONDS = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReportOfRank:
    """A report and the rank in its path."""

    rank: int
    report: RankReport


Message = RankRegistration | ReportOfRank | StragglerNotice


Answer = Directive | None


@dataclass(frozen=True)
class _Waiting:
    new: PipelineState
    message: Message
    answer: Future[Answer]


@dataclass
class _Group:
    """The waiting messages of a pipeline, and when they are due."""

    due: float
    size_bytes: int = 0
    waiting: list[_Waiting] = field(default_factory=list)


class MessageGroups:
    """The waiting messages by pipeline. Not thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._groups: dict[PipelineKey, _Group] = {}
        self._not_before: dict[PipelineKey, float] = {}

    @property
    def first_due(self) -> float:
        """When the first group is due, by the clock; infinite if nothing waits."""
        return min((group.due for group in self._groups.values()), default=inf)

    def add(self, waiting: _Waiting, wait_seconds: float) -> None:
        """Let a message wait for others of its pipeline for so long at most, and for the pipeline's pause.

        Raises:
            TooManyRequestsError: Too many messages wait.
        """
        new = waiting.new
        due = max(self._clock() + wait_seconds, self._not_before.get(new.key, 0.0))
        group = self._groups.get(new.key) or _Group(due)
        message = waiting.message.report if isinstance(waiting.message, ReportOfRank) else waiting.message
        size = BYTES_OF_RANK if isinstance(message, StragglerNotice) else message_bytes(message)
        # All messages of a pipeline share the plan of its user.
        size += 0 if group.waiting else given_bytes(new.job_plan)
        if group.size_bytes + size > MAX_WAITING_BYTES_OF_PIPELINE:
            raise TooManyRequestsError(f"recurrence {new.namespace}/{new.name}", 1.0)
        if sum(each.size_bytes for each in self._groups.values()) + size > WAITING_MESSAGES:
            raise TooManyRequestsError("all pipelines together", 1.0)
        group.due = min(group.due, due)
        group.size_bytes += size
        group.waiting.append(waiting)
        self._groups[new.key] = group

    def take(self, *, everything: bool = False) -> list[list[_Waiting]]:
        """Take the groups that are due, or all."""
        now = self._clock()
        self._not_before = {key: at for key, at in self._not_before.items() if at > now}
        due = [key for key, group in self._groups.items() if group.due <= now or everything]
        return [self._groups.pop(key).waiting for key in due]

    def pause(self, key: PipelineKey, seconds: float) -> None:
        """Let the next group of a pipeline wait after one that took so long."""
        self._not_before[key] = self._clock() + min(PAUSE_PER_SECOND * seconds, MAX_PAUSE_SECONDS)


class PipelineCommits:
    """Merges, decides and stores in one thread; a context manager, which starts and ends it.

    Args:
        store: The pipelines' store.
        utc_now: The time, with a time zone.
        clock: Monotonic seconds.
    """

    def __init__(
        self, store: Pipelines, utc_now: Callable[[], datetime], clock: Callable[[], float] = time.monotonic
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
        self._groups = MessageGroups(clock)
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
        answer: Future[Answer] = Future()
        wait_seconds = REPORT_WAIT_SECONDS if isinstance(message, ReportOfRank) else REGISTRATION_WAIT_SECONDS
        with self._arrived:
            if self._ending:
                raise OperationError("the plan service ends; send the message again")
            first = self._groups.first_due
            self._groups.add(_Waiting(new, message, answer), wait_seconds)
            if self._groups.first_due < first:
                self._arrived.notify()
        return await asyncio.wrap_future(answer)

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
            for group in groups:
                began = self._clock()
                self._commit(group)
                with self._arrived:
                    self._groups.pause(group[-1].new.key, self._clock() - began)
            self._clean_up()

    def _commit(self, group: Sequence[_Waiting]) -> None:
        """Commit a group; whatever fails is the answer to its messages, and those of other pipelines follow."""
        new, now, rejected = group[-1].new, self._utc_now(), dict[int, RegistrationConflictError]()

        def merge(state: PipelineState) -> PipelineState:
            rejected.clear()
            return _merged(state, group, now, rejected)

        try:
            known = self._store.change(new, self._known.get(new.key), merge, lambda state: decided(state, now), now)
            self._remember(new.key, known)
        except Exception as error:
            if not isinstance(error, OperationError):
                logger.exception("unexpected failure of the plan service for %s/%s", new.namespace, new.name)
            self._known.pop(new.key, None)
            for waiting in group:
                _answer(waiting, error)
            return
        for place, waiting in enumerate(group):
            _answer(waiting, rejected.get(place) or _directive(known.state, waiting.message, now))

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


def _merged(
    state: PipelineState, group: Sequence[_Waiting], now: datetime, rejected: dict[int, RegistrationConflictError]
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
                except RegistrationConflictError as error:
                    rejected[place] = error
                    continue
                state = with_report(state, rank, report, now)
            case StragglerNotice() as notice:
                state = with_notice(state, notice, now)
    return state


def _directive(state: PipelineState, message: Message, now: datetime) -> Answer | Exception:
    """The answer to one message; what fails in it is the answer to that message alone."""
    try:
        match message:
            case RankRegistration(process=process, rank=rank) | ReportOfRank(rank, RankReport(process=process)):
                return directive_for(state, rank, process, now)
            case _:
                return None
    except Exception as error:
        logger.exception("unexpected failure of an answer of the plan service for %s/%s", state.namespace, state.name)
        return error


def _answer(waiting: _Waiting, answer: Answer | Exception) -> None:
    # A request whose client is gone may be cancelled.
    if not waiting.answer.set_running_or_notify_cancel():
        return
    if isinstance(answer, Exception):
        waiting.answer.set_exception(answer)
    else:
        waiting.answer.set_result(answer)
