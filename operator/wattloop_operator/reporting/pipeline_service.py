"""The plan service: receives the registrations and reports of a pipeline's ranks, and answers with directives."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from cachetools import TTLCache
from starlette.concurrency import run_in_threadpool

from wattloop.pipeline.plan_messages import Directive
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.memory_shares import PIPELINE_SETTINGS
from wattloop_operator.reconcile.pipeline.held_bytes import BYTES_OF_STATE, state_bytes
from wattloop_operator.reconcile.pipeline.liveness import REPORT_SECONDS
from wattloop_operator.reconcile.pipeline.pipeline_state import JobPlan, PipelineKey, PipelineState
from wattloop_operator.reporting.interfaces import Authorizer, BearerToken, ProgressStore, UnknownRecurrenceError
from wattloop_operator.reporting.pipeline_commits import Message, PipelineCommits
from wattloop_operator.reporting.report_limits import ReportLimits

# After so long a change of the job's choice reaches its ranks.
STATE_SECONDS = 5.0
ENDED = Directive(first_iteration=0, report_seconds=60.0, reason="the attempt has ended")


PlanOfRecurrence = Callable[[TrainingAttempt], JobPlan]
"""How the job of a recurrence plans its pipelines. Raises OperationError if the job cannot be read now."""


class PipelineService:
    """The ranks' part of the reporting API, independent of HTTP. One event loop alone uses it.

    Args:
        recurrences: Reads the recurrence of a caller.
        authorizer: Checks who may report for a recurrence.
        commits: Merges, decides and stores.
        limits: The rate limits.
        clock: Monotonic seconds.
        plan_of: How the job of a recurrence plans its pipelines; default: all, with no time lost.
    """

    def __init__(
        self,
        recurrences: ProgressStore,
        authorizer: Authorizer,
        commits: PipelineCommits,
        limits: ReportLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
        plan_of: PlanOfRecurrence = lambda _: JobPlan(),
    ) -> None:
        self._recurrences = recurrences
        self._authorizer = authorizer
        self._commits = commits
        self._limits = limits
        self._plan_of = plan_of
        # A state is smaller than the share: the schema bounds a plan of the user.
        self._states: TTLCache[tuple[str, str], PipelineState | None] = TTLCache(
            PIPELINE_SETTINGS,
            STATE_SECONDS,
            clock,
            lambda state: BYTES_OF_STATE if state is None else state_bytes(state),
        )
        self._reading: dict[tuple[str, str], asyncio.Future[PipelineState | None]] = {}

    async def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> PipelineState | None:
        """Check that the caller may report for a recurrence, before the body is read.

        A thread asks the cluster, and only where nothing is remembered: a change of threads costs a message a tenth
        of its processor time, and more if the other threads compute.

        Returns:
            What the recurrence says of the pipeline; None if the attempt has ended.

        Raises:
            UnknownCallerError: The token is invalid.
            OwnershipError: The caller does not run this recurrence.
            TooManyRequestsError: There were too many messages for the recurrence, or too many unknown tokens.
            UnknownRecurrenceError: The recurrence does not exist.
            OperationError: The check failed for now.
        """
        if not self._authorizer.is_authorized(token, namespace, name):
            await run_in_threadpool(self._authorizer.authorize, token, namespace, name, address)
        self._limits.count_pipeline_message(namespace, name)
        return await self._state((namespace, name))

    async def exchange(self, new: PipelineState | None, message: Message) -> Directive:
        """Merge a message of an authorized caller, durably; a repeated or late one changes nothing.

        Args:
            new: What `authorize` returned.
            message: A registration, a report, or an announcement of a straggler or of its end.

        Raises:
            RegistrationConflictError: A registration lacks an instruction, or contradicts another rank; or a report
                has an energy that no GPU can have.
            TooManyRequestsError: Too many messages wait to be written.
            OperationError: The write failed for now; the message may be sent again.
        """
        if new is None:
            return ENDED
        return await self._commits.committed(new, message) or Directive(report_seconds=REPORT_SECONDS)

    async def _state(self, name: tuple[str, str]) -> PipelineState | None:
        """What the recurrence says, read once for all ranks that ask at the same time."""
        # One look-up: between two of them it may expire.
        with contextlib.suppress(KeyError):
            return self._states[name]
        if name not in self._reading:
            reading = asyncio.ensure_future(run_in_threadpool(self.read_state, *name))
            self._reading[name] = reading
            reading.add_done_callback(lambda done: self._keep(name, done))
        # A rank that is gone ends its own wait alone.
        return await asyncio.shield(self._reading[name])

    def _keep(self, name: tuple[str, str], read: asyncio.Future[PipelineState | None]) -> None:
        del self._reading[name]
        if not read.cancelled() and read.exception() is None:
            self._states[name] = read.result()

    def read_state(self, namespace: str, name: str) -> PipelineState | None:
        """What a recurrence says of its pipeline; None if its attempt has ended. From any thread.

        Raises:
            UnknownRecurrenceError: The recurrence does not exist.
            OperationError: It cannot be read now.
        """
        recurrence = self._recurrences.read(namespace, name)
        if recurrence is None:
            raise UnknownRecurrenceError(f"TrainingRecurrence {namespace}/{name} does not exist")
        spec = recurrence.spec
        key = PipelineKey(spec.job_ref.uid, spec.index, spec.attempt)
        if recurrence.status.result is not None:
            self._commits.forget(key)
            return None
        return PipelineState(
            key,
            namespace,
            name,
            spec.batch_size,
            recurrence.status.image_digest or "",
            job_plan=self._plan_of(recurrence),
        )
