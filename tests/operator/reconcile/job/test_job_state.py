"""The state of a job: whether its runs start and succeed, and what a user's request or deletion changes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend
from wattloop_operator.api.meta import Condition
from wattloop_operator.api.recurring_training_job_status import RunRequestStatus
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.actions import EmitEvent
from wattloop_operator.reconcile.job.recurrences import deleted_events

Backends = Callable[..., ModelBackend]
NO_RETRIES = {"retries": 0, "mode": "Fixed"}


def condition(backend: ModelBackend, kind: str = "Ready") -> Condition:
    return next(each for each in backend.job.status.conditions if each.type == kind)


def state(backend: ModelBackend) -> tuple[str | None, str]:
    status = backend.job.status
    return None if status.state is None else status.state.value, status.failure


def end(backend: ModelBackend, failure: Failure | None = None, metric: float = 0.95) -> None:
    """Run the oldest attempt to its end, and reconcile."""
    name = backend.start_attempt()
    if failure is None:
        backend.report(name, epoch=50, metric=metric, finished=True)
    backend.end_workload(name, failure, "exit code 1")
    backend.reconcile()


def test_a_job_waits_for_its_pods_runs_and_waits_for_the_next_start(backend: ModelBackend) -> None:
    backend.reconcile()
    assert state(backend) == ("Waiting", "")
    backend.start_attempt()
    backend.reconcile()
    assert state(backend) == ("Running", "")
    end(backend)
    assert state(backend) == ("Waiting", "")
    backend.change_spec(suspend=True)
    backend.reconcile()
    assert state(backend) == ("Suspended", "")


def test_a_recurrence_that_fails_by_all_its_attempts_makes_the_job_not_ready(backend_with: Backends) -> None:
    backend = backend_with(retries=1, mode="Fixed")
    end(backend, Failure.CRASHED)
    assert (condition(backend).status, state(backend)) == ("True", ("Waiting", ""))
    end(backend, Failure.CRASHED)
    assert (condition(backend).status, condition(backend).reason) == ("False", "Crashed")
    assert condition(backend).message.startswith("recurrence 0 failed by all its 2 attempts, the last time with batch")
    assert "exit code 1" in condition(backend).message
    assert state(backend) == ("Failing", "Crashed")
    backend.advance(3600)
    name = backend.start_attempt()
    backend.reconcile()
    assert state(backend) == ("Failing", "Crashed"), "a run that has not ended proves nothing"
    backend.report(name, epoch=20, metric=0.95, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    assert (condition(backend).status, state(backend)) == ("True", ("Waiting", ""))


def test_a_failure_with_another_template_says_nothing_about_the_next_run(backend_with: Backends) -> None:
    backend = backend_with(**NO_RETRIES)
    end(backend, Failure.CRASHED)
    assert state(backend) == ("Failing", "Crashed")
    corrected = {"spec": {"template": {"spec": {"containers": [{"name": "train", "image": "corrected:2"}]}}}}
    backend.change_spec(template=corrected)
    backend.reconcile()
    assert (condition(backend).status, state(backend)) == ("True", ("Waiting", ""))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"maxRecurrences": 1}, ("Complete", "")),
        ({"schedule": "0 3 30 2 *"}, ("Failing", "InvalidSchedule")),
    ],
)
def test_a_job_that_starts_nothing_more_is_complete_or_fails(
    backend_with: Backends, spec: dict[str, Any], expected: tuple[str, str]
) -> None:
    backend = backend_with(**NO_RETRIES)
    end(backend)
    backend.change_spec(**spec)
    backend.reconcile()
    assert state(backend) == expected


def test_a_target_that_no_batch_size_reaches_is_unreachable_and_a_crash_is_a_failure(backend_with: Backends) -> None:
    backend = backend_with(**NO_RETRIES)
    end(backend, metric=0.5)
    assert state(backend) == ("Unreachable", "Exhausted")
    assert (condition(backend).status, condition(backend).reason) == ("False", "Exhausted")
    backend.advance(3600)
    end(backend, Failure.CRASHED)
    assert state(backend) == ("Failing", "Crashed")


def test_a_run_request_says_once_that_it_waits_and_for_what(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    backend.change_spec(runRequest="tuned data")
    backend.reconcile()
    backend.advance(60)
    backend.reconcile()
    waits = condition(backend, "RunRequestWaits")
    text = f"spec.runRequest 'tuned data' waits: the next run waits for recurrence 0 ({name}) to end"
    assert (waits.status, waits.reason) == ("True", "RunActive")
    assert waits.message == f"{text}, because spec.concurrencyPolicy is Forbid"
    assert [each.reason for each in backend.events] == ["RunRequestWaits"]
    assert backend.events[0].message == f"team/digits: {waits.message}"
    backend.report(name, epoch=20, metric=0.95, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    assert backend.recurrences[backend.running[0]].spec.index == 1
    assert "RunRequestWaits" not in {each.type for each in backend.job.status.conditions}


def test_a_run_request_of_a_suspended_job_waits_for_its_resumption(backend_with: Backends) -> None:
    backend = backend_with(suspend=True, runRequest="tuned data")
    backend.reconcile()
    assert condition(backend, "RunRequestWaits").message.endswith("spec.suspend is true; set it to false to resume")


def test_a_recurrence_that_a_user_deletes_while_it_runs_leaves_an_event(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    backend.reconcile()
    backend.delete(name)
    backend.reconcile()
    backend.reconcile()
    (event,) = backend.events
    assert isinstance(event, EmitEvent)
    assert (event.warning, event.reason) == (True, "RecurrenceDeleted")
    assert event.message.startswith(f"team/digits: {name} was deleted while it was active")


def test_an_ended_recurrence_that_a_user_deletes_leaves_one_event(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    backend.report(name, epoch=20, metric=0.95, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    deleted = backend.recurrences[name]
    active = (name,)
    job = snapshot.job.model_copy(update={"status": snapshot.job.status.model_copy(update={"active": active})})
    text = f"team/digits: recurrence 0 ({name}) was deleted, and not by a history limit; "
    for records, learned in (
        (snapshot.records, "what was learned from it is kept"),
        ((), "nothing is learned from it"),
    ):
        after = replace(snapshot, job=job, recurrences=(), records=records, deleted_recurrences=(deleted,))
        assert list(deleted_events(after)) == [EmitEvent(False, "RecurrenceDeleted", f"{text}{learned}", deleted)]


def ended_request(backend: ModelBackend) -> tuple[str | None, ...]:
    found = backend.job.status.run_request or RunRequestStatus()
    return found.ended, found.result, found.failed


def test_a_run_request_has_ended_with_its_result_when_its_recurrence_has(backend_with: Backends) -> None:
    backend = backend_with(schedule=None, runRequest="one", retries=1, mode="Fixed")
    end(backend, Failure.CRASHED)
    assert ended_request(backend) == (None, None, None), "its recurrence is retried"
    end(backend)
    assert ended_request(backend) == ("one", "Reached", None)
    backend.change_spec(runRequest="two")
    backend.reconcile()
    assert ended_request(backend) == ("one", "Reached", None), "the new one has only started"
    end(backend, Failure.CRASHED)
    end(backend, Failure.CRASHED)
    assert ended_request(backend) == ("two", "Crashed", "two")
    backend.change_spec(successfulRunsHistoryLimit=0, failedRunsHistoryLimit=0)
    backend.reconcile()
    assert ended_request(backend) == ("two", "Crashed", "two")
    backend.change_spec(runRequest="three")
    backend.reconcile()
    end(backend)
    assert ended_request(backend) == ("three", "Reached", "two")


def test_a_run_request_that_a_newer_one_replaced_while_it_ran_ends_with_its_result(backend_with: Backends) -> None:
    backend = backend_with(schedule=None, runRequest="one", concurrencyPolicy="Forbid")
    name = backend.start_attempt()
    backend.change_spec(runRequest="two")
    backend.reconcile()
    backend.report(name, epoch=50, metric=0.95, finished=True)
    backend.end_workload(name)
    seen = []
    for _ in range(5):
        backend.reconcile()
        seen.append(ended_request(backend))
    assert seen[-1] == ("one", "Reached", None)
    end(backend)
    assert ended_request(backend) == ("two", "Reached", None)
    backend.change_spec(runRequest="one")
    for _ in range(5):
        backend.reconcile()
        seen.append(ended_request(backend))
    # A value that was used before has ended already, and stays so.
    assert seen[-5:] == [("one", "Reached", None)] * 5


def test_a_run_that_is_due_ends_no_run_request(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    backend.change_spec(runRequest="waits", concurrencyPolicy="Forbid")
    backend.report(name, epoch=50, metric=0.95, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    assert ended_request(backend) == (None, None, None)


def test_a_run_request_whose_recurrence_a_user_deletes_is_cancelled(backend_with: Backends) -> None:
    backend = backend_with(schedule=None, runRequest="one")
    name = backend.start_attempt()
    backend.reconcile()
    del backend.recurrences[name]
    backend.reconcile()
    assert ended_request(backend) == ("one", "Cancelled", "one")
