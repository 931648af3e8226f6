"""Writes FrequencyPlans and their statuses, and what recurrences say of their plans, from the stored pipelines.

The leader calls it every few seconds. A pipeline whose attempt runs is looked at each time, because the silence of a
rank changes nothing in the store; everything is written only if it differs from what was written last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import ValidationError

from wattloop.errors import InputError, OperationError
from wattloop_operator.api.frequency_plan import FrequencyPlan
from wattloop_operator.api.power_fields import AppliedFrequencyPlan
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence, TrainingRecurrenceStatus
from wattloop_operator.cluster.api import (
    FREQUENCY_PLANS,
    TRAINING_RECURRENCES,
    AlreadyExistsError,
    Body,
    ClusterApi,
    ConflictError,
    NotFoundError,
    RejectedError,
    status_to_apply,
)
from wattloop_operator.cluster.api_transport import UnreadableResponseError
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.stored_parts import metadata_part
from wattloop_operator.domain.job_identity import history_uid, owner_of
from wattloop_operator.domain.names import JOB_LABEL
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey, PipelineState
from wattloop_operator.reconcile.pipeline.plan_object import plan_object
from wattloop_operator.reconcile.pipeline.plan_status import applied_plan, plan_status
from wattloop_operator.store.pipeline_store import Pipelines
from wattloop_operator.workloads.ownership import controller_uid

# A manager of its own: server-side apply keeps its fields apart from those of the controller and the reporting API.
FIELD_MANAGER = "wattloop-frequency-plans"
# Older plans of a job that the operator made are deleted.
KEPT_PLANS = 5

logger = logging.getLogger(__name__)


@dataclass
class _Written:
    """What was written of one pipeline.

    Attributes:
        revision: Revision of the stored pipeline.
        plan: The FrequencyPlan as the server last returned it.
        made_of: Digest of the profile that the FrequencyPlan was made of.
        applied: What the recurrence says of it.
        ended: Whether the end of the attempt is written.
        problem: What was logged last.
    """

    revision: int = -1
    plan: FrequencyPlan | None = None
    made_of: str = ""
    applied: AppliedFrequencyPlan | None = None
    ended: bool = False
    problem: str = ""


@dataclass
class FrequencyPlanWriter:
    """Brings the FrequencyPlans of all pipelines up to date. One thread uses it.

    Attributes:
        api: The API server.
        cache: Jobs and recurrences.
        pipelines: The stored pipelines.
        clock: The time, with a time zone.
    """

    api: ClusterApi
    cache: ObjectCache
    pipelines: Pipelines
    clock: Callable[[], datetime]
    _written: dict[PipelineKey, _Written] = field(default_factory=dict)

    def write(self) -> None:
        """Write what has changed; a problem of one pipeline is logged when it changes, and does not stop the others.

        Raises:
            OperationError: The store or the API server does not answer now.
        """
        revisions = self.pipelines.revisions()
        present: dict[PipelineKey, TrainingRecurrence] = {}
        for cached in self.cache.recurrences.all() if revisions else ():
            spec = cached.value.spec
            key = PipelineKey(spec.job_ref.uid, spec.index, spec.attempt)
            if key in revisions:
                present[key] = cached.value
        for gone in self._written.keys() - present.keys():
            del self._written[gone]
        for key, recurrence in present.items():
            written = self._written.setdefault(key, _Written())
            ended = recurrence.status.result is not None
            if not (ended and written.ended and written.revision == revisions[key]):
                self._try(key, recurrence, written, revisions[key])

    def _try(self, key: PipelineKey, recurrence: TrainingRecurrence, written: _Written, revision: int) -> None:
        name = recurrence.metadata.full_name
        try:
            state = self.pipelines.read_without_measurements(key)
            if state is not None:
                self._write(state, recurrence, written)
                written.revision, written.ended = revision, recurrence.status.result is not None
        except (RejectedError, InputError, ValidationError, UnreadableResponseError) as error:
            if written.problem != str(error):
                logger.warning("%s: its FrequencyPlan is not up to date: %s", name, error)
            written.problem = str(error)
        except (NotFoundError, ConflictError):
            # Changed or deleted meanwhile; it is read again next time.
            written.plan = None
        except OperationError:
            raise
        except Exception as error:  # what one tenant's values lead to ends nothing of another's
            if written.problem != str(error):
                logger.exception("%s: unexpected failure of its FrequencyPlan", name)
            written.problem = str(error)

    def _write(self, state: PipelineState, recurrence: TrainingRecurrence, written: _Written) -> None:
        job = self.cache.jobs.get((recurrence.metadata.namespace, recurrence.spec.job_ref.name))
        if job is None or history_uid(job.value) != recurrence.spec.job_ref.uid or not state.ranks:
            return
        plan = self._plan(state, job.value, written)
        ended = recurrence.status.result is not None
        if plan is not None and not (ended and plan.status.recurrence not in (None, state.name)):
            status = plan_status(state, plan, ended=ended, now=self.clock())
            if status != plan.status:
                body = self.api.apply_status(FREQUENCY_PLANS, status_to_apply(plan, status.to_wire()))
                self.cache.put_plan(body)
                plan = FrequencyPlan.from_wire(body)
            written.plan = plan
        applied = applied_plan(state, "" if plan is None else plan.metadata.name)
        if not ended and applied not in (written.applied, recurrence.status.frequency_plan):
            # Its own field alone: the other fields of the status belong to other writers.
            status_part = TrainingRecurrenceStatus(frequency_plan=applied)
            own = status_part.model_dump(mode="json", by_alias=True, include={"frequency_plan"}, exclude_none=True)
            self.api.apply_status(TRAINING_RECURRENCES, status_to_apply(recurrence, own), field_manager=FIELD_MANAGER)
            written.applied = applied

    def _plan(self, state: PipelineState, job: RecurringTrainingJob, written: _Written) -> FrequencyPlan | None:
        """The FrequencyPlan of a pipeline: the user's, or the one that the operator makes; None before there is one."""
        namespace, name = state.namespace, job.spec.power.named_plan
        if name is not None:
            # One that the cache lacks may have no room there.
            known = self.cache.plans.get((namespace, name))
            body = None if known is not None else self.api.find(FREQUENCY_PLANS, namespace, name)
            return known.value if known is not None else None if body is None else FrequencyPlan.from_wire(body)
        digest = "" if state.frontier is None else state.frontier.profile_digest
        if written.plan is not None and written.made_of == digest:
            return written.plan
        wanted = plan_object(state, owner_of(job))
        if wanted is None:
            return None
        body = self.api.find(FREQUENCY_PLANS, namespace, wanted.metadata.name) or self._create(wanted)
        plan = FrequencyPlan.from_wire(body)
        if plan.spec != wanted.spec or job.metadata.uid not in {each.uid for each in plan.metadata.owner_references}:
            raise RejectedError(
                f"FrequencyPlan {namespace}/{wanted.metadata.name} exists and is not the operator's; delete it"
            )
        written.made_of = digest
        return plan

    def _create(self, wanted: FrequencyPlan) -> Body:
        body = wanted.to_wire()
        body.pop("status", None)
        try:
            created = self.api.create(FREQUENCY_PLANS, body)
        except AlreadyExistsError:
            return self.api.get(FREQUENCY_PLANS, wanted.metadata.namespace, wanted.metadata.name)
        self._delete_old(wanted)
        return created

    def _delete_old(self, newest: FrequencyPlan) -> None:
        metadata = newest.metadata
        (owner,) = metadata.owner_references
        bodies, _ = self.api.list(
            FREQUENCY_PLANS, namespace=metadata.namespace, labels=f"{JOB_LABEL}={owner.name}", metadata_only=True,
            part=metadata_part,
        )  # fmt: skip
        mine = [each for each in (body["metadata"] for body in bodies) if controller_uid(each) == owner.uid]
        mine.sort(key=lambda each: (each["creationTimestamp"], each["name"] == metadata.name))
        for each in mine[:-KEPT_PLANS]:
            self.api.delete(FREQUENCY_PLANS, metadata.namespace, each["name"], each["uid"])
