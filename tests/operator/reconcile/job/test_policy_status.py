"""The next decision in the status of a job is the one that its next recurrence starts with."""

from collections.abc import Callable
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend
from wattloop.wire.training_messages import LimitMeasurement
from wattloop_operator.api.recurring_training_job_status import NextRecurrence
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.page.job_view import NONE_LEFT, NOT_YET, next_decision_view
from wattloop_operator.reconcile.learning.decision import MEASURES
from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET

BackendWith = Callable[..., ModelBackend]
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


def decision_of(found: NextRecurrence | None) -> NextRecurrence | None:
    """What is decided, without the time and the expectations."""
    names = ("batch_size", "parameters", "power_limit_watts", "kind", "reason")
    return found and NextRecurrence(**{name: getattr(found, name) for name in names})


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
    backend.end_workload(name)
    backend.reconcile()
    return recurrence


@pytest.mark.parametrize("spec", [*SPECS, {"objective": GUARD}])
def test_the_next_decision_is_the_one_that_the_next_recurrence_starts_with(
    backend_with: BackendWith, spec: dict[str, Any]
) -> None:
    backend = backend_with(**spec, power={"mode": "Auto"})
    backend.reconcile()
    run_recurrence(backend)
    kinds = set()
    for _ in range(12):
        expected = decision_of(backend.job.status.next)
        backend.advance(3600)
        assert decided(run_recurrence(backend)) == expected
        assert expected is not None
        kinds.add((expected.kind, expected.power_limit_watts))
        assert backend.job.status.next is not None
        assert float(backend.job.status.next.cost_joules or 0) > 0
    assert len(kinds) > 1 or "mode" in spec


def test_in_mode_advise_the_page_has_what_the_next_recurrence_runs_and_the_status_what_is_advised(
    backend_with: BackendWith,
) -> None:
    backend = backend_with(mode="Advise")
    backend.reconcile()
    for _ in range(2):
        run_recurrence(backend)
        shown, _ = next_decision_view(backend.snapshot(KEY))
        advised = backend.job.status.next
        backend.advance(3600)
        spec = run_recurrence(backend).spec
        assert shown is not None
        assert advised is not None
        assert (shown.batch_size, shown.kind, shown.reason) == (64, "Advise", spec.decision.reason)
        assert f"advised is batch size {advised.batch_size}" in spec.decision.reason
        backend.advance(3600)


def test_sizes_whose_runs_missed_the_target_are_in_the_status_before_and_after_one_reaches_it(
    backend_with: BackendWith,
) -> None:
    backend = backend_with(batchSize={"default": 64, "candidates": [32, 64, 128]}, retries=5)
    sizes = []
    for metric in (0.5, 0.5, 0.95):
        name = backend.start_attempt()
        sizes.append(backend.recurrences[name].spec.batch_size)
        backend.report(name, epoch=7, metric=metric, joules=900.0, seconds=9.0, finished=True)
        backend.reconcile()
        backend.end_workload(name)
        backend.reconcile()
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
    snapshot = backend.snapshot(KEY)
    found, text = next_decision_view(snapshot)
    assert (found is None) == bool(text)
    return text


def test_the_page_says_why_no_next_decision_is_known(backend_with: BackendWith) -> None:
    backend = backend_with(batchSize={"default": 64, "candidates": [64]})
    assert text_of(backend) == NOT_YET
    for _ in range(CRASH_BUDGET):
        name = backend.start_attempt()
        assert text_of(backend) == ""
        backend.end_workload(name, Failure.CRASHED, exit_code=1)
        backend.reconcile()
    assert text_of(backend) == NONE_LEFT


def test_a_job_that_has_had_all_its_recurrences_says_what_another_one_would_run(backend_with: BackendWith) -> None:
    backend = backend_with(maxRecurrences=1)
    backend.reconcile()
    run_recurrence(backend)
    assert backend.job.status.state == "Complete"
    following = backend.job.status.next
    assert following is not None
    assert (following.time, following.batch_size, backend.job.status.totals.recurrences) == (None, 64, 1)
