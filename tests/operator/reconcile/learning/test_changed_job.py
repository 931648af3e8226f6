"""What earlier attempts still say after their job has changed, from the objects and from the store alike."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend, backend_with
from wattloop_operator.api.meta import ConditionStatus
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.recurring_training_job_status import LearnSince
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.job.start import CRASHES_COUNT
from wattloop_operator.reconcile.learning.changed_job import source_observations
from wattloop_operator.reconcile.learning.decision import Attempt, decide, decision_context
from wattloop_planner.bandit.policy import NoFeasibleArmError
from wattloop_planner.observations import Outcome

CORRECTED = {"spec": {"template": {"spec": {"containers": [{"name": "train", "image": "digits:corrected"}]}}}}
TWO_SIZES: dict[str, Any] = {"batchSize": {"default": 64, "candidates": [32, 64]}}


def decision_or_error(backend: ModelBackend) -> TrainingAttempt | str:
    snapshot = backend.state
    try:
        return decide(snapshot, Attempt(99, 0, "next", backend.now))
    except NoFeasibleArmError as error:
        return str(error)


def same_decision_from_either_memory(backend: ModelBackend) -> TrainingAttempt | str:
    """The next decision, which must not change if the store or the objects are lost."""
    records, recurrences = dict(backend.records), dict(backend.recurrences)
    decided = decision_or_error(backend)
    backend.records = {}
    assert decision_or_error(backend) == decided
    backend.records, backend.recurrences = records, {}
    assert decision_or_error(backend) == decided
    backend.recurrences = recurrences
    return decided


def crash_until_blocked(backend: ModelBackend) -> None:
    backend.reconcile()
    while backend.running:
        name = backend.running[0]
        backend.run_workload(name)
        backend.end_attempt(name, Failure.CRASHED, "exit code 1")
        backend.reconcile_after(3600)


def run_once(backend: ModelBackend, epochs: int, *, metric: float = 0.95, image: str | None = None) -> None:
    """One recurrence of one attempt: 100 J and one second an epoch."""
    backend.run_once(image, epoch=epochs, metric=metric, joules=100.0 * epochs, seconds=1.0 * epochs)


def change_target(backend: ModelBackend, **target: Any) -> None:
    backend.change_spec(objective={**backend.job.to_wire()["spec"]["objective"], "target": target})


def ready_reason(backend: ModelBackend) -> tuple[ConditionStatus, str, str]:
    ready = next(each for each in backend.job.status.conditions if each.type == "Ready")
    return ready.status, ready.reason, ready.message


@pytest.mark.parametrize(
    ("mode", "policy"), [("Optimize", "ThompsonSampling"), ("Optimize", "Zeus"), ("Fixed", "Zeus")]
)
def test_a_corrected_template_frees_a_job_whose_batch_sizes_all_crashed(mode: str, policy: str) -> None:
    sizes = {"candidates": [32, 64], "policy": policy}
    backend = backend_with(mode=mode, batchSize=sizes, successfulRunsHistoryLimit=1000, failedRunsHistoryLimit=1000)
    crash_until_blocked(backend)
    status, reason, message = ready_reason(backend)
    assert (status, reason) == (ConditionStatus.FALSE, "NoArmLeft")
    assert message.endswith(CRASHES_COUNT)
    assert isinstance(same_decision_from_either_memory(backend), str)
    crashed = len(backend.records)

    backend.change_spec(template=CORRECTED)
    decided = same_decision_from_either_memory(backend)
    assert isinstance(decided, TrainingAttempt)
    assert decided.spec.template_digest == backend.job.spec.template.digest
    backend.reconcile_after(3600)
    assert ready_reason(backend)[:2] == (ConditionStatus.TRUE, "Scheduled")
    assert len(backend.running) == 1

    text = f"{crashed} attempt(s) that crashed with another template or training runtime do not count"
    assert backend.job.status.learning.endswith(f"; {text}")

    # The corrected template has a crash budget of its own.
    crash_until_blocked(backend)
    assert ready_reason(backend)[1] == "NoArmLeft"
    assert len(backend.records) == 2 * crashed


def test_a_corrected_runtime_frees_a_job_too_within_seconds() -> None:
    backend = backend_with(**TWO_SIZES, failedRunsHistoryLimit=1000, continuous=True)
    backend.runtime_digest = "crashes"
    crash_until_blocked(backend)
    blocked = decision_or_error(backend)
    assert isinstance(blocked, str)
    backend.runtime_digest = "corrected"
    assert isinstance(same_decision_from_either_memory(backend), TrainingAttempt)
    backend.runtime_digest = "crashes"
    assert decision_or_error(backend) == blocked
    # Nothing reports the change, so the job looks for it.
    wake_at = backend.reconcile()
    assert wake_at - backend.now <= timedelta(seconds=10)
    backend.runtime_digest, backend.now = "corrected", wake_at
    backend.reconcile()
    assert len(backend.running) == 1


def test_a_mistake_in_a_runtime_that_is_corrected_ends_the_wait() -> None:
    backend = backend_with(continuous=True)
    backend.runtime_digest = "mistake"
    backend.reconcile()
    for _ in range(2):
        (name,) = backend.running
        backend.run_workload(name)
        backend.end_workload(name, Failure.NOT_STARTED, "no such file", exit_code=127)
        wake_at = backend.reconcile()
    assert backend.running == []
    assert ready_reason(backend)[1] == "StartFailed"
    assert wake_at - backend.now <= timedelta(seconds=10)
    backend.runtime_digest, backend.now = "corrected", wake_at
    backend.reconcile()
    assert len(backend.running) == 1


def test_a_runtime_that_is_not_known_changes_nothing() -> None:
    backend = backend_with(**TWO_SIZES, failedRunsHistoryLimit=1000)
    backend.runtime_digest = "known"
    crash_until_blocked(backend)
    before = backend.job.status
    backend.runtime_digest = None
    backend.reconcile()
    assert backend.job.status == before


def test_the_original_template_gets_its_crashes_back() -> None:
    backend = backend_with(**TWO_SIZES)
    original = backend.job.to_wire()["spec"]["template"]
    crash_until_blocked(backend)
    blocked = decision_or_error(backend)
    backend.change_spec(template=CORRECTED)
    backend.change_spec(template=original)
    assert decision_or_error(backend) == blocked


def test_a_change_elsewhere_in_the_spec_keeps_the_crashes() -> None:
    backend = backend_with(**TWO_SIZES)
    crash_until_blocked(backend)
    backend.change_spec(
        failedRunsHistoryLimit=7, objective={**backend.job.to_wire()["spec"]["objective"], "maxEpochs": 9}
    )
    assert isinstance(decision_or_error(backend), str)


def test_a_crash_with_an_unknown_template_counts() -> None:
    backend = backend_with(**TWO_SIZES, failedRunsHistoryLimit=1000)
    crash_until_blocked(backend)
    backend.records = {key: replace(record, template_digest=None) for key, record in backend.records.items()}
    backend.change_spec(template=CORRECTED)
    assert isinstance(decision_or_error(backend), str)


LOSS = {"metric": "loss", "threshold": "0.3", "direction": "Minimize"}
KEEP_ALL: dict[str, Any] = {"successfulRunsHistoryLimit": 1000, "failedRunsHistoryLimit": 1000, "retries": 0}


HIGHER = {"metric": "accuracy", "threshold": "0.93"}
TWICE = {"metric": "accuracy", "threshold": "0.9", "consecutiveEvaluations": 2}
MODEL, ZEUS = "ThompsonSampling", "Zeus"


@pytest.mark.parametrize(
    ("target", "policy", "curves"),
    [
        # Only a curve of the same metric and direction says anything of the new target.
        (LOSS, MODEL, True),
        ({"metric": "top5", "threshold": "0.9"}, MODEL, True),
        ({"metric": "accuracy", "threshold": "0.9", "direction": "Minimize"}, MODEL, True),
        (HIGHER, MODEL, False),
        (TWICE, MODEL, False),
        # The published algorithm would prune each batch size that stopped at the easier target.
        (HIGHER, ZEUS, True),
        (LOSS, ZEUS, True),
        (TWICE, ZEUS, True),
    ],
)
def test_runs_with_another_target_give_only_the_cost_of_an_epoch(
    target: dict[str, Any], policy: str, curves: bool
) -> None:
    backend = backend_with(batchSize={"policy": policy}, **KEEP_ALL)
    for _ in range(12):
        run_once(backend, 10)
    assert {each.batch_size for each in backend.records.values()} != {64}
    if not curves:
        backend.records = {key: replace(record, curve=None) for key, record in backend.records.items()}
        for name, recurrence in backend.recurrences.items():
            if recurrence.progress is not None:
                progress = recurrence.progress.model_copy(update={"curve": None})
                backend.recurrences[name] = recurrence.model_copy(update={"progress": progress})
    change_target(backend, **target)
    decided = same_decision_from_either_memory(backend)
    assert isinstance(decided, TrainingAttempt)
    # As in a new job: the default, without a limit that another target's costs would give.
    assert (decided.spec.batch_size, decided.spec.stop_cost_joules) == (64, None)
    seen = decision_context(backend.state, 99, 0).observations
    assert [(each.other_target, each.curve) for each in seen] == [(True, None)] * 12
    backend.reconcile()
    status = backend.job.status
    assert (status.best, "DefaultCost" in backend.savings) == (None, False)
    assert [each.cost_saving_percent for each in status.recent_recurrences] == [None] * 10


def run_along_a_curve(backend: ModelBackend, metrics: list[float]) -> None:
    """One recurrence of one attempt with an evaluation in each epoch: 100 J and one second an epoch."""
    backend.reconcile()
    (name,) = backend.running
    backend.run_workload(name)
    for epoch, metric in enumerate(metrics, start=1):
        fields: dict[str, Any] = {"joules": 100.0 * epoch, "seconds": 1.0 * epoch}
        backend.report(name, sequence=epoch, epoch=epoch, metric=metric, **fields)
    backend.end_attempt(name)
    backend.advance(3600)


# 0.8 is reached in epoch 6, 0.9 in epoch 10.
CURVE = [0.3, 0.5, 0.6, 0.7, 0.75, 0.81, 0.84, 0.87, 0.89, 0.91]


@pytest.mark.parametrize(
    ("target", "outcome", "epochs", "reachable"),
    [
        ({"metric": "accuracy", "threshold": "0.8"}, Outcome.REACHED, 6, True),
        ({"metric": "accuracy", "threshold": "0.8", "consecutiveEvaluations": 3}, Outcome.REACHED, 8, True),
        # The curve ends at the easier target, so that the harder one takes more epochs than these.
        ({"metric": "accuracy", "threshold": "0.95"}, Outcome.STOPPED, 10, False),
    ],
)
def test_the_curves_of_earlier_runs_say_when_they_reached_another_threshold(
    target: dict[str, Any], outcome: Outcome, epochs: float, reachable: bool
) -> None:
    backend = backend_with(**KEEP_ALL)
    for _ in range(6):
        run_along_a_curve(backend, CURVE)
    backend.change_spec(suspend=True)
    change_target(backend, **target)
    same_decision_from_either_memory(backend)
    context = decision_context(backend.state, 99, 0)
    assert context.target == backend.job.spec.objective.target.run_target
    seen = {(each.outcome, each.epochs, each.other_target) for each in context.observations}
    assert seen == {(outcome, epochs, False)}
    assert all(each.curve is not None and each.curve.epochs[-1] == epochs for each in context.observations)
    backend.reconcile()
    assert backend.job.status.learning == (
        "epochs to the target are learned from 6 attempt(s); 6 attempt(s) with another target count through the curve "
        "of their metric"
    )
    assert (backend.job.status.best is not None) is reachable
    found = [each.status for each in backend.job.status.conditions if each.type == "TargetUnreachable"]
    assert found == ([ConditionStatus.FALSE] if reachable else [])


def test_after_a_lower_threshold_the_runs_before_count_as_if_they_had_had_it() -> None:
    easier = {"metric": "accuracy", "threshold": "0.8"}
    changed, always = backend_with(**KEEP_ALL), backend_with(**KEEP_ALL)
    change_target(always, **easier)
    for _ in range(3):
        run_along_a_curve(changed, CURVE)
        run_along_a_curve(always, CURVE[:6])
    change_target(changed, **easier)

    def known(backend: ModelBackend) -> list[tuple[object, ...]]:
        snapshot = backend.state
        return [
            (each.recurrence, each.outcome, each.epochs, each.curve, each.energy_joules, each.time_seconds)
            for each in decision_context(snapshot, 99, 0).observations
        ]

    assert known(changed) == known(always)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"metric": "accuracy", "threshold": "0.8"}, [(Outcome.REACHED, 6, 6)]),
        ({"metric": "accuracy", "threshold": "0.9"}, [(Outcome.REACHED, 10, 10)]),
        ({"metric": "accuracy", "threshold": "0.95"}, [(Outcome.STOPPED, 10, 10)]),
        ({"metric": "top5", "threshold": "0.8"}, []),
    ],
)
def test_the_runs_of_another_job_are_converted_to_the_target(
    target: dict[str, str], expected: list[tuple[Outcome, float, int]]
) -> None:
    source = backend_with(**KEEP_ALL)
    run_along_a_curve(source, CURVE)
    backend = backend_with(objective={"target": target, "maxEpochs": 50})
    snapshot = backend.state
    seen = decision_context(replace(snapshot, source_records=tuple(source.records.values())), 0, 0).observations
    assert [(each.outcome, each.epochs, len(each.curve.epochs if each.curve else ())) for each in seen] == expected
    assert all(each.from_other_job for each in seen)


def test_savings_after_a_changed_target_are_those_of_the_present_one() -> None:
    backend = backend_with(mode="Fixed", **KEEP_ALL)
    run_once(backend, 10)
    change_target(backend, **LOSS)
    run_once(backend, 2, metric=0.2)
    # Half of 200 J and of 400 W for 2 s.
    assert (backend.savings["DefaultCost"].value, backend.savings["Cost"].value) == (500, None)
    unreachable = next(each for each in backend.job.status.conditions if each.type == "TargetUnreachable")
    assert unreachable.status is ConditionStatus.FALSE


def test_the_original_target_gets_its_observations_back() -> None:
    backend = backend_with(**KEEP_ALL)
    for _ in range(3):
        run_once(backend, 10)
    decided = decision_or_error(backend)
    change_target(backend, **LOSS)
    assert decision_or_error(backend) != decided
    change_target(backend, metric="accuracy", threshold="0.90")
    assert decision_or_error(backend) == decided


def test_an_attempt_that_ends_after_its_target_changed_is_not_compared() -> None:
    backend = backend_with(mode="Fixed", **KEEP_ALL)
    run_once(backend, 10)
    backend.reconcile()
    (name,) = backend.running
    backend.run_workload(name)
    change_target(backend, metric="accuracy", threshold="0.8")
    backend.finish(name, epoch=10, metric=0.95, joules=1000.0, seconds=10.0)
    assert backend.recurrences[name].status.cost_joules is not None
    assert [each.cost_saving_percent for each in backend.job.status.recent_recurrences[:2]] == [None, None]
    assert backend.savings["Cost"].value is None


def test_after_another_image_or_template_all_counts_and_the_policy_knows_where_it_changed() -> None:
    backend = backend_with(mode="Fixed", **KEEP_ALL)
    old, new = "sha256:" + "0" * 64, "sha256:" + "1" * 64
    for image in (None, old, old, new):
        run_once(backend, 10, image=image)
    first = backend.job.spec.template.digest
    learning = backend.job.status.learning
    assert learning.startswith("epochs to the target are learned from 4 attempt(s)")
    expected = "2 attempt(s) with another image, template or training runtime count until later runs differ from them"
    assert learning.endswith(f"; {expected}")

    backend.change_spec(template=CORRECTED)
    run_once(backend, 10, image=new)
    same_decision_from_either_memory(backend)
    seen = decision_context(backend.state, 99, 0).observations
    assert [each.image_digest for each in seen] == ["", old, old, new, new]
    assert [each.template_digest for each in seen] == [first] * 4 + [backend.job.spec.template.digest]
    learning = backend.job.status.learning
    assert learning.startswith("epochs to the target are learned from 5 attempt(s)")
    assert "; 4 attempt(s) with another image, template or training runtime" in learning


SOURCE_UID = "source-uid"


@pytest.fixture
def records() -> tuple[ObservationRecord, ...]:
    """Four attempts of the source with batch size 64, in recurrences 0 to 3."""
    source = backend_with(mode="Fixed", retries=0)
    for _ in range(4):
        source.run_once(epoch=10, metric=0.95)
    return tuple(replace(record, job_uid=SOURCE_UID, job_name="source") for record in source.records.values())


def source_job(backend: ModelBackend, learn_since: LearnSince | None = None) -> RecurringTrainingJob:
    metadata = backend.job.metadata.model_copy(update={"uid": SOURCE_UID, "name": "source"})
    status = backend.job.status.model_copy(update={"learn_since": learn_since})
    return backend.job.model_copy(update={"metadata": metadata, "status": status})


def recurrences_used(
    backend: ModelBackend, records: tuple[ObservationRecord, ...], source: RecurringTrainingJob | None
) -> list[int]:
    used = source_observations(replace(backend.state, source_records=records, source_job=source))
    assert all(each.from_other_job for each in used)
    return sorted(each.recurrence for each in used)


@pytest.mark.parametrize(
    ("changes", "used"),
    [
        ({}, [0, 1, 2, 3]),
        ({"target_evaluations": 3}, [0, 1, 2, 3]),
        ({"target_metric": "loss"}, [1, 2, 3]),
        ({"target_direction": "Minimize"}, [1, 2, 3]),
        ({"target_threshold": 0.8, "curve": None}, [1, 2, 3]),
        # A curve says when the other threshold was reached.
        ({"target_threshold": 0.8}, [0, 1, 2, 3]),
        ({"result": "Crashed"}, [1, 2, 3]),
        ({"result": "Cancelled"}, [1, 2, 3]),
    ],
)
def test_only_attempts_towards_the_same_target_are_used(
    backend: ModelBackend, records: tuple[ObservationRecord, ...], changes: dict[str, Any], used: list[int]
) -> None:
    records = (replace(records[0], **changes), *records[1:])
    for source in (None, source_job(backend)):
        assert recurrences_used(backend, records, source) == used


@pytest.mark.parametrize(("before", "used"), [(0, [0, 1, 2, 3]), (2, [2, 3]), (9, [])])
def test_attempts_that_the_source_forgot_are_not_used(
    backend: ModelBackend, records: tuple[ObservationRecord, ...], before: int, used: list[int]
) -> None:
    source = source_job(backend, LearnSince(text="a", recurrence=before))
    assert recurrences_used(backend, records, source) == used
    # A deleted job of the same name has other recurrences.
    deleted = tuple(replace(record, job_uid="deleted-uid") for record in records)
    assert recurrences_used(backend, deleted, source) == [0, 1, 2, 3]
