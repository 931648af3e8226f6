"""The state of a job: whether its runs start and succeed, and what a user's request or deletion changes."""

from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend, backend_with
from wattloop.wire.training_messages import LimitMeasurement
from wattloop_operator.api.meta import Condition
from wattloop_operator.api.recurring_training_job_status import NextRecurrence, RunRequestStatus
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.page.job_view import NONE_LEFT, NOT_YET, next_decision_view
from wattloop_operator.reconcile.actions import EmitEvent
from wattloop_operator.reconcile.job.recurrences import deleted_events
from wattloop_operator.reconcile.learning.decision import MEASURES
from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET

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
    backend.end_attempt(name, failure, "exit code 1")


def test_a_job_waits_for_its_pods_runs_and_waits_for_the_next_start(backend: ModelBackend) -> None:
    backend.reconcile()
    assert state(backend) == ("Waiting", "")
    backend.start_attempt()
    backend.reconcile()
    assert state(backend) == ("Running", "")
    end(backend)
    assert state(backend) == ("Waiting", "")
    backend.edit(suspend=True)
    assert state(backend) == ("Suspended", "")


def test_a_recurrence_that_fails_by_all_its_attempts_makes_the_job_not_ready() -> None:
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
    backend.finish(name, epoch=20, metric=0.95)
    assert (condition(backend).status, state(backend)) == ("True", ("Waiting", ""))


def test_a_failure_with_another_template_says_nothing_about_the_next_run() -> None:
    backend = backend_with(**NO_RETRIES)
    end(backend, Failure.CRASHED)
    assert state(backend) == ("Failing", "Crashed")
    corrected = {"spec": {"template": {"spec": {"containers": [{"name": "train", "image": "corrected:2"}]}}}}
    backend.edit(template=corrected)
    assert (condition(backend).status, state(backend)) == ("True", ("Waiting", ""))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [({"maxRecurrences": 1}, ("Complete", "")), ({"schedule": "0 3 30 2 *"}, ("Failing", "InvalidSchedule"))],
)
def test_a_job_that_starts_nothing_more_is_complete_or_fails(spec: dict[str, Any], expected: tuple[str, str]) -> None:
    backend = backend_with(**NO_RETRIES)
    end(backend)
    backend.edit(**spec)
    assert state(backend) == expected


def test_a_target_that_no_batch_size_reaches_is_unreachable_and_a_crash_is_a_failure() -> None:
    backend = backend_with(**NO_RETRIES)
    end(backend, metric=0.5)
    assert state(backend) == ("Unreachable", "Exhausted")
    assert (condition(backend).status, condition(backend).reason) == ("False", "Exhausted")
    backend.advance(3600)
    end(backend, Failure.CRASHED)
    assert state(backend) == ("Failing", "Crashed")


def test_a_run_request_says_once_that_it_waits_and_for_what(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    backend.edit(runRequest="tuned data")
    backend.reconcile_after(60)
    waits = condition(backend, "RunRequestWaits")
    text = f"spec.runRequest 'tuned data' waits: the next run waits for recurrence 0 ({name}) to end"
    assert (waits.status, waits.reason) == ("True", "RunActive")
    assert waits.message == f"{text}, because spec.concurrencyPolicy is Forbid"
    assert [each.reason for each in backend.events] == ["RunRequestWaits"]
    assert backend.events[0].message == f"team/digits: {waits.message}"
    backend.finish(name, epoch=20, metric=0.95)
    assert backend.recurrences[backend.running[0]].spec.index == 1
    assert "RunRequestWaits" not in {each.type for each in backend.job.status.conditions}


def test_a_run_request_of_a_suspended_job_waits_for_its_resumption() -> None:
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
    backend.finish(name, epoch=20, metric=0.95)
    snapshot = backend.state
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


def test_a_run_request_has_ended_with_its_result_when_its_recurrence_has() -> None:
    backend = backend_with(schedule=None, runRequest="one", retries=1, mode="Fixed")
    end(backend, Failure.CRASHED)
    assert ended_request(backend) == (None, None, None), "its recurrence is retried"
    end(backend)
    assert ended_request(backend) == ("one", "Reached", None)
    backend.edit(runRequest="two")
    assert ended_request(backend) == ("one", "Reached", None), "the new one has only started"
    end(backend, Failure.CRASHED)
    end(backend, Failure.CRASHED)
    assert ended_request(backend) == ("two", "Crashed", "two")
    backend.edit(successfulRunsHistoryLimit=0, failedRunsHistoryLimit=0)
    assert ended_request(backend) == ("two", "Crashed", "two")
    backend.edit(runRequest="three")
    end(backend)
    assert ended_request(backend) == ("three", "Reached", "two")


def test_a_run_request_that_a_newer_one_replaced_while_it_ran_ends_with_its_result() -> None:
    backend = backend_with(schedule=None, runRequest="one", concurrencyPolicy="Forbid")
    name = backend.start_attempt()
    backend.edit(runRequest="two")
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
    backend.finish(name, epoch=50, metric=0.95)
    assert ended_request(backend) == (None, None, None)


def test_a_run_request_whose_recurrence_a_user_deletes_is_cancelled() -> None:
    backend = backend_with(schedule=None, runRequest="one")
    name = backend.start_attempt()
    backend.reconcile()
    del backend.recurrences[name]
    backend.reconcile()
    assert ended_request(backend) == ("one", "Cancelled", "one")


EPOCHS = {16: 14, 32: 10, 64: 12, 128: 30}
PROFILE = tuple(LimitMeasurement(watts, joules, 10.0, 0.1) for watts, joules in ((200.0, 80.0), (300.0, 100.0)))
SPECS: list[dict[str, Any]] = [{}, {"batchSize": {"policy": "Zeus"}}, {"mode": "Fixed"}]
GUARD = {"target": {"metric": "accuracy", "threshold": "0.9", "tolerance": "0.01"}, "maxEpochs": 50}


def decided(recurrence: TrainingAttempt) -> NextRecurrence:
    spec = recurrence.spec
    return NextRecurrence(
        batch_size=spec.batch_size,
        parameters=spec.parameters,
        power_limit_watts=spec.power_limit_watts,
        kind=spec.decision.kind,
        reason=f"{spec.decision.reason}{MEASURES if spec.profile_power_limits else ''}",
    )


def run_recurrence(backend: ModelBackend) -> TrainingAttempt:
    """Start the recurrence that is due and let it reach its target; returns it as it was decided."""
    name = backend.start_attempt()
    recurrence = backend.recurrences[name]
    epochs = EPOCHS[recurrence.spec.batch_size]
    measured = PROFILE if recurrence.spec.profile_power_limits else ()
    backend.report(
        name, epoch=epochs, metric=0.95, joules=900.0 * epochs, seconds=9.0 * epochs, finished=True, profile=measured
    )
    backend.reconcile()
    backend.end_attempt(name)
    return recurrence


@pytest.mark.parametrize("spec", [*SPECS, {"objective": GUARD}])
def test_the_next_decision_is_the_one_that_the_next_recurrence_starts_with(spec: dict[str, Any]) -> None:
    backend = backend_with(**spec, power={"mode": "Auto"})
    backend.reconcile()
    run_recurrence(backend)
    kinds = set()
    for _ in range(12):
        names = ("batch_size", "parameters", "power_limit_watts", "kind", "reason")
        expected = backend.job.status.next and NextRecurrence(
            **{name: getattr(backend.job.status.next, name) for name in names}
        )
        backend.advance(3600)
        assert decided(run_recurrence(backend)) == expected
        kinds.add((expected.kind, expected.power_limit_watts))
        assert float(backend.job.status.next.cost_joules or 0) > 0
    assert len(kinds) > 1 or "mode" in spec


def test_in_mode_advise_the_page_has_what_the_next_recurrence_runs_and_the_status_what_is_advised() -> None:
    backend = backend_with(mode="Advise")
    backend.reconcile()
    for _ in range(2):
        run_recurrence(backend)
        shown, _ = next_decision_view(backend.snapshot(KEY))
        advised = backend.job.status.next
        backend.advance(3600)
        spec = run_recurrence(backend).spec
        assert (shown.batch_size, shown.kind, shown.reason) == (64, "Advise", spec.decision.reason)
        assert f"advised is batch size {advised.batch_size}" in spec.decision.reason
        backend.advance(3600)


def test_sizes_whose_runs_missed_the_target_are_in_the_status_before_and_after_one_reaches_it() -> None:
    backend = backend_with(batchSize={"default": 64, "candidates": [32, 64, 128]}, retries=5)
    sizes = []
    for metric in (0.5, 0.5, 0.95):
        name = backend.start_attempt()
        sizes.append(backend.recurrences[name].spec.batch_size)
        backend.report(name, epoch=7, metric=metric, joules=900.0, seconds=9.0, finished=True)
        backend.reconcile()
        backend.end_attempt(name)
        assert {each.batch_size: each.observations for each in backend.job.status.arms if each.observations} == (
            dict.fromkeys(sizes, 1)
        )
    assert sorted(sizes) == [32, 64, 128]
    assert [each.missed for each in sorted(backend.job.status.arms, key=lambda arm: sizes.index(arm.batch_size))] == [
        1,
        1,
        0,
    ]


def text_of(backend: ModelBackend) -> str:
    found, text = next_decision_view(backend.snapshot(KEY))
    assert (found is None) == bool(text)
    return text


def test_the_page_says_why_no_next_decision_is_known() -> None:
    backend = backend_with(batchSize={"default": 64, "candidates": [64]})
    assert text_of(backend) == NOT_YET
    for _ in range(CRASH_BUDGET):
        name = backend.start_attempt()
        assert text_of(backend) == ""
        backend.end_attempt(name, Failure.CRASHED, exit_code=1)
    assert text_of(backend) == NONE_LEFT


def test_a_job_that_has_had_all_its_recurrences_says_what_another_one_would_run() -> None:
    backend = backend_with(maxRecurrences=1)
    backend.reconcile()
    run_recurrence(backend)
    assert backend.job.status.state == "Complete"
    following = backend.job.status.next
    assert (following.time, following.batch_size, backend.job.status.totals.recurrences) == (None, 64, 1)
