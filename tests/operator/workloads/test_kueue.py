"""What Kueue's Workload says of a workload that waits, or that ran and was evicted."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.template import Template
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import Failure, QueueWait, WorkloadPhase, WorkloadState
from wattloop_operator.workloads.injection import ClusterAddresses, TemplateError
from wattloop_operator.workloads.kueue import check_queue_labels, in_queue
from wattloop_operator.workloads.workload_manifest import manifest

CREATED = "2026-03-01T12:00:00Z"
STARTED = datetime(2026, 3, 1, 12, 5, tzinfo=UTC)
EVICTED = "2026-03-01T12:10:00Z"
SUSPENDED = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "digits-0", "labels": {"kueue.x-k8s.io/queue-name": "team"}, "creationTimestamp": CREATED},
    "spec": {"suspend": True},
}
STATE = WorkloadState("digits-0", uid="u", phase=WorkloadPhase.RUNNING, started_at=STARTED, all_running_since=STARTED)


def condition(kind: str, reason: str, message: str, status: str = "True", at: str = EVICTED) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def workload(*conditions: dict[str, Any], active: bool = True, **status: Any) -> dict[str, Any]:
    metadata = {"name": "job-digits-0-1a2b3", "creationTimestamp": CREATED}
    return {"metadata": metadata, "spec": {"active": active}, "status": {"conditions": list(conditions), **status}}


def state_of(found: dict[str, Any] | None, started: datetime | None = None, body: Any = None) -> WorkloadState:
    before = STATE if started is not None else WorkloadState("digits-0", uid="u")
    return in_queue(before, body or SUSPENDED, found, first_started=started, unknown=QueueWait("team", "NotReadable"))


def test_a_workload_without_quota_waits_for_the_reason_that_kueue_gives_since_its_creation() -> None:
    text = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed"
    state = state_of(workload(condition("QuotaReserved", "WaitingForQuota", text, "False")))
    assert state.phase is WorkloadPhase.PENDING
    assert state.queue == QueueWait("team", "WaitingForQuota", text, datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
    assert state.message == f"it waits in queue team: WaitingForQuota: {text}"
    assert state.started_at is None
    assert state.all_running_since is None


def test_a_reason_of_another_version_is_shown_and_never_matched() -> None:
    state = state_of(workload(condition("QuotaReserved", "Any:Other", "later versions say more", "False")))
    assert (state.queue.reason, state.queue.message) == ("Waiting", "later versions say more")


def test_a_workload_with_quota_names_the_admission_check_that_it_waits_for() -> None:
    checks = [
        {"name": "capacity", "state": "Ready"},
        {"name": "watts", "state": "Pending", "message": "the rack is at its limit"},
    ]
    state = state_of(workload(condition("QuotaReserved", "QuotaReserved", ""), admissionChecks=checks))
    assert state.queue.reason == "QuotaReserved"
    assert state.queue.message == "admission check watts is Pending: the rack is at its limit"


def test_a_workload_that_was_preempted_after_its_start_is_disrupted_and_would_run_again() -> None:
    conditions = (
        condition("Evicted", "Preempted", "Preempted to accommodate a workload of higher priority"),
        condition("Preempted", "InClusterQueue", "Preempted to accommodate a workload of higher priority"),
    )
    state = state_of(workload(*conditions), STARTED)
    assert (state.phase, state.failure) == (WorkloadPhase.FAILED, Failure.DISRUPTED)
    assert state.ended_at == datetime(2026, 3, 1, 12, 10, tzinfo=UTC)
    assert state.message.startswith("its queue evicted it: Preempted: Preempted to accommodate")
    assert "InClusterQueue" in state.message
    assert state.may_run_again
    assert state.must_be_ended


def test_a_workload_that_was_evicted_before_it_ran_keeps_waiting_since_then() -> None:
    found = workload(
        condition("Evicted", "PodsReadyTimeout", "Exceeded the PodsReady timeout"),
        condition("QuotaReserved", "Pending", "Exceeded the PodsReady timeout", "False"),
    )
    state = state_of(found)
    assert state.phase is WorkloadPhase.PENDING
    assert state.queue.since == datetime(2026, 3, 1, 12, 10, tzinfo=UTC)
    assert "PodsReadyTimeout" in state.queue.message


def test_pods_that_are_seen_before_the_workload_is_seen_to_be_resumed_are_no_eviction() -> None:
    admitted = workload(condition("QuotaReserved", "QuotaReserved", ""), condition("Admitted", "Admitted", ""))
    body = SUSPENDED | {"status": {"conditions": [condition("Suspended", "JobSuspended", "", at=CREATED)]}}
    state = state_of(admitted, STARTED, body)
    assert state.phase is WorkloadPhase.PENDING
    assert state.failure is None


def test_a_suspension_after_the_start_is_an_eviction_although_the_workload_cannot_be_read() -> None:
    body = SUSPENDED | {"status": {"conditions": [condition("Suspended", "JobSuspended", "")]}}
    assert state_of(None, STARTED, body).failure is Failure.DISRUPTED


def test_the_end_of_the_time_that_the_queue_allows_is_a_deadline() -> None:
    found = workload(condition("Evicted", "DeactivatedDueToMaximumExecutionTimeExceeded", "exceeded"), active=False)
    assert state_of(found, STARTED).failure is Failure.DEADLINE


def test_a_deactivated_workload_says_how_to_get_it_admitted_again() -> None:
    found = workload(condition("Evicted", "DeactivatedDueToRequeuingLimitExceeded", "after 3 tries"), active=False)
    state = state_of(found)
    assert state.queue.reason == "Deactivated"
    assert "kubectl patch workload job-digits-0-1a2b3 --type=merge" in state.queue.message


def test_a_wait_of_which_no_workload_is_known_says_what_is_known() -> None:
    assert state_of(None).queue == QueueWait("team", "NotReadable")


PODS = {"containers": [{"name": "train"}]}
JOB_SET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
TRAIN_JOB = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize("label", ["queue-name", "priority-class"])
def test_a_label_of_kueue_inside_of_a_workload_is_refused_and_one_of_the_workload_is_not(kind: str, label: str) -> None:
    labels = {kind: {f"kueue.x-k8s.io/{label}": "other"}}
    metadata = {"metadata": labels}
    templates: tuple[dict[str, Any], ...] = (
        {"spec": {"template": {**metadata, "spec": PODS}}},
        {**JOB_SET, "spec": {"replicatedJobs": [{"template": metadata}]}},
        {**TRAIN_JOB, "spec": {"runtimeRef": {"name": "torch-distributed"}, **labels}},
    )
    for template in templates:
        with pytest.raises(TemplateError, match=rf"{label}: other; write it into spec\.template\.metadata\.labels,"):
            check_queue_labels(Template.model_validate(template))
    of_workload = Template.model_validate({**metadata, "spec": {"template": {"spec": PODS}}})
    if kind == "labels":
        check_queue_labels(of_workload)
    else:
        with pytest.raises(TemplateError, match=r"spec\.template\.metadata: found the annotation kueue"):
            check_queue_labels(of_workload)


def test_the_labels_of_kueue_are_those_of_the_workload_alone_and_change_nothing_that_is_trained(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: Callable[[RecurringTrainingJob], TrainingRecurrence]
) -> None:
    plain = {"metadata": {"labels": {"app": "digits"}}, "spec": {"template": {"spec": PODS}}}
    queue = {"kueue.x-k8s.io/queue-name": "team-a", "kueue.x-k8s.io/priority-class": "low"}
    queued = {**plain, "metadata": {"labels": {"app": "digits", **queue}}}
    job, without = make_job(template=queued), make_job(template=plain)
    made = manifest(job, recurrence_of(job), ClusterAddresses())
    pod = made["spec"]["template"]["metadata"]["labels"]
    assert made["metadata"]["labels"] == {**pod, **queue}
    assert pod["app"] == "digits"
    assert job.spec.template.queue == "team-a"
    assert job.spec.template.digest == without.spec.template.digest
