"""A target that the first evaluation meets: a warning, and no change of the direction."""

from collections.abc import Callable

import pytest

from support.backends.model_backend import ModelBackend
from wattloop_operator.api.meta import Condition

Backends = Callable[..., ModelBackend]
FAR = "FarBeyondThreshold"


def met_at_once(backend: ModelBackend) -> Condition | None:
    return next((each for each in backend.job.status.conditions if each.type == "TargetMetAtOnce"), None)


def train(backend: ModelBackend, *evaluations: tuple[int, float]) -> None:
    """Run the next recurrence, which evaluates after these epochs."""
    name = backend.start_attempt()
    for sequence, (epoch, metric) in enumerate(evaluations, start=1):
        last = sequence == len(evaluations)
        backend.report(name, sequence=sequence, epoch=epoch, metric=metric, finished=last)
    backend.end_workload(name)
    backend.reconcile()
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
    backend_with: Backends, threshold: str, direction: str, evaluations: list[tuple[int, float]], reason: str | None
) -> None:
    backend = backend_with(objective=target(threshold, direction), mode="Fixed", retries=0)
    train(backend, *evaluations)
    found = met_at_once(backend)
    assert (None if found is None else found.reason) == reason
    assert ("TargetMetAtOnce" in {each.reason for each in backend.events}) == (reason is not None)


@pytest.mark.parametrize(("metric", "reason"), [(0.9, None), (2.3, FAR)])
def test_a_training_of_one_epoch_is_asked_for_the_direction_far_beyond_the_threshold_alone(
    backend_with: Backends, metric: float, reason: str | None
) -> None:
    backend = backend_with(objective=target("0.88", "Maximize") | {"maxEpochs": 1}, mode="Fixed")
    train(backend, (1, metric))
    found = met_at_once(backend)
    assert (None if found is None else found.reason) == reason


def test_the_warning_says_what_was_seen_and_what_to_write_and_comes_once(backend_with: Backends) -> None:
    backend = backend_with(objective=target("0.1", "Maximize"))
    train(backend, (1, 2.3))
    train(backend, (1, 2.2))
    found = met_at_once(backend)
    assert found is not None
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
def test_a_metric_whose_name_leaves_no_doubt_is_not_asked_for_its_direction(
    backend_with: Backends, metric: str
) -> None:
    objective = target("0.9", "Maximize")
    backend = backend_with(objective=objective | {"target": {"metric": metric, "threshold": "0.9"}})
    train(backend, (1, 0.99))
    found = met_at_once(backend)
    assert found is not None
    assert "Minimize" not in found.message
    assert found.message.endswith("raise the threshold if a better model is wanted")


def test_the_warning_comes_once_although_other_attempts_miss_the_target_between(backend_with: Backends) -> None:
    backend = backend_with(objective=target("0.1", "Maximize"), mode="Fixed", retries=0)
    for metric in (2.3, 0.05, 2.2, 0.04, 2.1):
        train(backend, (1, metric))
    found = met_at_once(backend)
    assert found is not None
    assert "after 1 epoch at 2.1" in found.message
    assert len([each for each in backend.events if each.reason == "TargetMetAtOnce"]) == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_training_that_led_to_the_target_shows_that_the_direction_is_right(
    backend_with: Backends, order: tuple[int, int]
) -> None:
    """A smaller batch size may reach in the first epoch what the default reaches in the second."""
    backend = backend_with(objective=target("0.5", "Minimize"), mode="Fixed", retries=0)
    evaluations = [[(1, 2.3), (2, 0.23)], [(1, 0.12)]]
    for each in order:
        train(backend, *evaluations[each])
    assert met_at_once(backend) is None


def test_the_corrected_direction_ends_the_warning(backend_with: Backends) -> None:
    backend = backend_with(objective=target("0.1", "Maximize"))
    train(backend, (1, 2.3))
    backend.change_spec(objective=target("0.1", "Minimize"))
    backend.reconcile()
    assert met_at_once(backend) is None


def test_a_warm_start_may_begin_at_its_target(backend_with: Backends) -> None:
    backend = backend_with(objective=target("0.88", "Maximize"), output={"directory": "/models/digits"})
    name = backend.start_attempt()
    recurrence = backend.recurrences[name]
    warm = recurrence.model_copy(update={"spec": recurrence.spec.model_copy(update={"warm_start": True})})
    backend.recurrences[name] = warm
    backend.report(name, epoch=1, metric=0.9, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    assert met_at_once(backend) is None
