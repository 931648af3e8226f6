"""A job's conditions about its target and about learning from another job."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend, backend_with
from support.backends.sample_reports import START
from wattloop.commands.main import main
from wattloop_operator.api.meta import Condition
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Failure, Snapshot
from wattloop_operator.reconcile import actions
from wattloop_operator.reconcile.actions import WriteJobStatus
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.decision import decision_context
from wattloop_operator.reconcile.next_actions import next_actions


def condition_of_type(backend: ModelBackend, kind: str) -> Condition | None:
    return next((each for each in backend.job.status.conditions if each.type == kind), None)


def test_an_unreached_target_has_a_condition_with_the_attempts_and_a_remedy() -> None:
    backend = backend_with(retries=0, mode="Fixed")
    backend.reconcile()
    assert condition_of_type(backend, "TargetUnreachable") is None
    backend.run_once(epoch=50, metric=0.5)
    backend.run_once(epoch=50, metric=0.6)
    never = condition_of_type(backend, "TargetUnreachable")
    assert (never.status, never.reason) == ("True", "NeverReached")
    assert "none of 2 attempts (batch sizes 64) reached accuracy 0.9 within 50 epochs" in never.message
    assert "; the best was 0.6 with batch size 64 after 50 epochs; a threshold of 0.5 would be" in never.message
    assert "reached, at the lowest cost with batch size 64; lower objective.target" in never.message
    events = [(each.warning, each.reason) for each in backend.events]
    assert events == [(True, "TargetUnreachable")]
    assert backend.events[0].message.startswith("team/digits: none of 1 attempts (batch sizes 64)")
    backend.run_once(epoch=50, metric=0.95)
    assert condition_of_type(backend, "TargetUnreachable").status == "False"
    assert condition_of_type(backend, "Learns") is None


def test_the_remedy_for_a_script_that_ends_early_is_not_a_larger_limit_of_epochs() -> None:
    backend = backend_with(retries=0, mode="Fixed")
    backend.run_once(epoch=7, metric=0.5)
    never = condition_of_type(backend, "TargetUnreachable")
    assert "; lower objective.target.threshold, let the script train for more than the 7 epochs" in never.message


def attempt_once(backend: ModelBackend, metric: float) -> int:
    """End the running attempt with this metric after all its epochs, and return its batch size."""
    name = backend.running[0]
    backend.run_workload(name)
    backend.finish(name, epoch=50, metric=metric)
    return backend.recurrences[name].spec.batch_size


def test_a_target_that_no_batch_size_reaches_costs_one_attempt_per_recurrence() -> None:
    backend = backend_with(retries=5)
    backend.reconcile()
    metrics = {16: 0.5, 32: 0.7, 64: 0.8, 128: 0.6}
    first: list[int] = []
    while backend.running:
        first.append(attempt_once(backend, metrics[backend.recurrences[backend.running[0]].spec.batch_size]))
        assert (condition_of_type(backend, "TargetUnreachable") is None) == bool(backend.running)
    assert (first[0], sorted(first)) == (64, [16, 32, 64, 128])
    for _ in range(3):
        backend.reconcile_after(3600)
        assert backend.recurrences[backend.running[0]].spec.decision.last_attempt
        attempt_once(backend, 0.55)
        assert not backend.running
    never = condition_of_type(backend, "TargetUnreachable")
    assert never.status == "True"
    assert "none of 7 attempts" in never.message
    assert "the best was 0.8 with batch size 64 after 50 epochs" in never.message
    assert [each.reason for each in backend.events] == ["TargetUnreachable"]
    backend.reconcile_after(3600)
    attempt_once(backend, 0.95)
    now = condition_of_type(backend, "TargetUnreachable")
    assert (now.status, now.reason) == ("False", "Reached")


def test_the_best_metric_of_a_loss_is_the_lowest() -> None:
    target = {"metric": "loss", "threshold": "0.1", "direction": "Minimize"}
    backend = backend_with(retries=0, mode="Fixed", objective={"target": target, "maxEpochs": 50})
    for metric in (0.5, 0.3, 0.4):
        backend.run_once(epoch=50, metric=metric)
    never = condition_of_type(backend, "TargetUnreachable")
    assert "; the best was 0.3 with batch size 64 after 50 epochs; a threshold of 0.5 would be reached" in never.message
    assert "; raise objective.target.threshold" in never.message


def test_the_best_metric_may_be_that_of_an_earlier_evaluation() -> None:
    backend = backend_with(retries=0, mode="Fixed")
    backend.run_once(epoch=50, metric=0.6)
    backend.reconcile()
    for sequence, (epoch, metric) in enumerate([(10, 0.7), (20, 0.85), (30, 0.85), (40, 0.5)], start=1):
        backend.report(backend.running[0], sequence=sequence, epoch=epoch, metric=metric)
    backend.run_workload(backend.running[0])
    backend.end_attempt(backend.running[0])
    never = condition_of_type(backend, "TargetUnreachable")
    assert "the best was 0.85 with batch size 64 after 20 epochs" in never.message


def test_a_crash_of_the_last_attempt_is_retried() -> None:
    backend = backend_with(retries=5)
    backend.reconcile()
    while backend.running:
        attempt_once(backend, 0.5)
    backend.reconcile_after(3600)
    name = backend.running[0]
    backend.run_workload(name)
    backend.end_attempt(name, Failure.CRASHED, "exit code 1")
    assert [backend.recurrences[each].spec.attempt for each in backend.running] == [1]


def status_with(backend: ModelBackend, learned: tuple[ObservationRecord, ...], *, known: bool = True) -> Condition:
    snapshot = backend.state
    source = snapshot.job if known else None
    result = next_actions(replace(snapshot, source_records=learned, source_job=source), START)
    write = next(action for action in result.actions if isinstance(action, WriteJobStatus))
    return next(each for each in write.status.conditions if each.type == "Transferred")


def test_a_condition_tells_what_was_learned_from_another_job() -> None:
    source = backend_with(retries=0)
    source.run_once(epoch=50, metric=0.95)
    learned = tuple(source.records.values())
    batch_size = {"default": 64, "candidates": [32, 64], "learnFrom": "source"}
    backend = backend_with(schedule=None, batchSize=batch_size)
    transferred = status_with(backend, learned)
    assert (transferred.status, transferred.reason) == ("True", "LearnedFrom")
    assert "1 attempts of source (batch sizes 64)" in transferred.message
    nothing = status_with(backend, ())
    assert (nothing.status, nothing.reason) == ("False", "NothingKnown")
    assert nothing.message == "source has no runs to learn from yet"
    unknown = status_with(backend, (), known=False)
    assert (unknown.status, unknown.reason) == ("False", "UnknownJob")
    assert "there is no RecurringTrainingJob source" in unknown.message
    other = tuple(replace(record, target_metric="loss") for record in learned)
    nothing = status_with(backend, other)
    assert (nothing.status, nothing.reason) == ("False", "NothingKnown")
    assert nothing.message.endswith("; its 1 attempt(s) have another target, crashed or are forgotten")


def test_the_policy_sees_which_observations_are_from_another_job() -> None:
    source = backend_with(retries=0)
    source.run_once(epoch=50, metric=0.95)
    snapshot = backend_with(batchSize={"default": 64, "candidates": [32, 64], "learnFrom": "source"}).snapshot(KEY)
    assert isinstance(snapshot, Snapshot)
    context = decision_context(replace(snapshot, source_records=tuple(source.records.values())), 0, 0)
    assert [each.from_other_job for each in context.observations] == [True]


def test_objects_older_than_the_store_keeps_are_deleted_and_not_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backend_with(successfulRunsHistoryLimit=1000)
    for _ in range(4):
        backend.run_once(epoch=10, metric=0.95, joules=1000.0, seconds=10.0)
    backend.change_spec(suspend=True, successfulRunsHistoryLimit=2)
    snapshot = backend.state
    monkeypatch.setattr(job_observations, "MAX_OBSERVATIONS_OF_JOB", 2)
    found = next_actions(replace(snapshot, records=snapshot.records[-2:]), backend.clock()).actions
    assert not [each for each in found if isinstance(each, actions.RecordObservation | actions.RecordLateUsage)]
    deleted = [each.recurrence.spec.index for each in found if isinstance(each, actions.DeleteRecurrence)]
    assert deleted == [0, 1]


LOGS: dict[str, Any] = {"reporting": {"source": "Logs"}, "batchSize": {"default": 64, "candidates": [32, 64]}}


def template(**container: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "train", "image": "digits:1", **container}]}
    return {"spec": {"template": {"spec": pod}}}


@pytest.mark.parametrize(
    ("spec", "is_told"),
    [
        ({"template": template(command=["python", "train.py"])}, True),
        ({"template": template(args=["--batch=$(WATTLOOP_BATCH_SIZE)"])}, False),
        ({"template": template(command=["sh", "-c", "train -b $WATTLOOP_PER_DEVICE_BATCH_SIZE"])}, False),
        ({"template": template(env=[{"name": "BATCH", "value": "$(WATTLOOP_BATCH_SIZE)"}])}, False),
        # The client has the batch size, and one batch size alone is no choice.
        ({"template": template(), "reporting": {"source": "Push"}}, False),
        ({"template": template(), "batchSize": {"default": 64, "candidates": [64]}}, False),
        ({"template": template(), "mode": "Fixed"}, False),
        ({"template": template(), "reporting": {"source": "KubeflowTrainer"}}, True),
    ],
)
def test_a_job_that_passes_no_batch_size_to_a_script_without_the_client_is_told_at_its_start(
    spec: dict[str, Any], is_told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = backend_with(**{**LOGS, **spec})
    for _ in range(2):
        backend.reconcile()
    conditions = {each.type: each for each in backend.job.status.conditions}
    assert ("BatchSizePassed" in conditions) is is_told
    assert [each.reason for each in backend.events].count("BatchSizePassed") == int(is_told)
    manifest = tmp_path / "job.yaml"
    manifest.write_text(json.dumps({**backend.job.to_wire(), "status": {}}))
    assert main(["validate", str(manifest), "--format", "json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert [each["warning"] for each in warnings] == ([conditions["BatchSizePassed"].message] if is_told else [])


FAR = "FarBeyondThreshold"


def met_at_once(backend: ModelBackend) -> Condition | None:
    return next((each for each in backend.job.status.conditions if each.type == "TargetMetAtOnce"), None)


def train(backend: ModelBackend, *evaluations: tuple[int, float]) -> None:
    """Run the next recurrence, which evaluates after these epochs."""
    name = backend.start_attempt()
    for sequence, (epoch, metric) in enumerate(evaluations, start=1):
        last = sequence == len(evaluations)
        backend.report(name, sequence=sequence, epoch=epoch, metric=metric, finished=last)
    backend.end_attempt(name)
    backend.advance(3600)


def target(threshold: str, direction: str) -> dict[str, object]:
    return {"target": {"metric": "quality", "threshold": threshold, "direction": direction}, "maxEpochs": 50}


@pytest.mark.parametrize(
    ("threshold", "direction", "evaluations", "reason"),
    [
        ("0.1", "Maximize", [(1, 2.3)], FAR),
        ("0.1", "Maximize", [(5, 2.3)], FAR),
        ("0.9", "Minimize", [(1, 0.1)], FAR),
        ("0.88", "Maximize", [(1, 0.9)], "FirstEvaluation"),
        # A training that is evaluated at its end alone.
        ("0.88", "Maximize", [(10, 0.9)], None),
        ("0.88", "Maximize", [(1, 0.5), (2, 0.9)], None),
        ("0.1", "Minimize", [(1, 2.3), (2, 0.05)], None),
        ("0.1", "Minimize", [(1, 2.3)], None),
    ],
)
def test_a_first_evaluation_that_meets_the_target_asks_for_the_direction(
    threshold: str, direction: str, evaluations: list[tuple[int, float]], reason: str | None
) -> None:
    backend = backend_with(objective=target(threshold, direction), mode="Fixed", retries=0)
    train(backend, *evaluations)
    found = met_at_once(backend)
    assert (None if found is None else found.reason) == reason
    assert ("TargetMetAtOnce" in {each.reason for each in backend.events}) == (reason is not None)


@pytest.mark.parametrize(("metric", "reason"), [(0.9, None), (2.3, FAR)])
def test_a_training_of_one_epoch_is_asked_for_the_direction_far_beyond_the_threshold_alone(
    metric: float, reason: str | None
) -> None:
    backend = backend_with(objective=target("0.88", "Maximize") | {"maxEpochs": 1}, mode="Fixed")
    train(backend, (1, metric))
    found = met_at_once(backend)
    assert (None if found is None else found.reason) == reason


def test_the_warning_says_what_was_seen_and_what_to_write_and_comes_once() -> None:
    backend = backend_with(objective=target("0.1", "Maximize"))
    train(backend, (1, 2.3))
    train(backend, (1, 2.2))
    found = met_at_once(backend)
    assert (
        "quality reached the target at its first evaluation: after 1 epoch at 2.2, threshold 0.1, direction Maximize: "
        "is it Minimize? If so, write spec.objective.target.direction: Minimize"
    ) in found.message
    (event,) = (each for each in backend.events if each.reason == "TargetMetAtOnce")
    assert event.warning
    assert "after 1 epoch at 2.3" in event.message
    # The decisions of the job are as its user wrote them.
    assert {each.spec.target.direction.value for each in backend.recurrences.values()} == {"Maximize"}


@pytest.mark.parametrize("metric", ["eval_accuracy", "valAcc", "test/top1_acc", "F1", "macro_f1", "ROC-AUC"])
def test_a_metric_whose_name_leaves_no_doubt_is_not_asked_for_its_direction(metric: str) -> None:
    objective = target("0.9", "Maximize")
    backend = backend_with(objective=objective | {"target": {"metric": metric, "threshold": "0.9"}})
    train(backend, (1, 0.99))
    found = met_at_once(backend)
    assert "Minimize" not in found.message
    assert found.message.endswith("raise the threshold if a better model is wanted")


def test_the_warning_comes_once_although_other_attempts_miss_the_target_between() -> None:
    backend = backend_with(objective=target("0.1", "Maximize"), mode="Fixed", retries=0)
    for metric in (2.3, 0.05, 2.2, 0.04, 2.1):
        train(backend, (1, metric))
    assert "after 1 epoch at 2.1" in met_at_once(backend).message
    assert len([each for each in backend.events if each.reason == "TargetMetAtOnce"]) == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_training_that_led_to_the_target_shows_that_the_direction_is_right(order: tuple[int, int]) -> None:
    """A smaller batch size may reach in the first epoch what the default reaches in the second."""
    backend = backend_with(objective=target("0.5", "Minimize"), mode="Fixed", retries=0)
    evaluations = [[(1, 2.3), (2, 0.23)], [(1, 0.12)]]
    for each in order:
        train(backend, *evaluations[each])
    assert met_at_once(backend) is None


def test_the_corrected_direction_ends_the_warning() -> None:
    backend = backend_with(objective=target("0.1", "Maximize"))
    train(backend, (1, 2.3))
    backend.edit(objective=target("0.1", "Minimize"))
    assert met_at_once(backend) is None


def test_a_warm_start_may_begin_at_its_target() -> None:
    backend = backend_with(objective=target("0.88", "Maximize"), output={"directory": "/models/digits"})
    name = backend.start_attempt()
    recurrence = backend.recurrences[name]
    warm = recurrence.model_copy(update={"spec": recurrence.spec.model_copy(update={"warm_start": True})})
    backend.recurrences[name] = warm
    backend.finish(name, epoch=1, metric=0.9)
    assert met_at_once(backend) is None
