"""Another text of `spec.learnSince` holds for objects and store alike, and is carried out once at any kill."""

from typing import Any

import pytest

from support.backends.model_backend import KilledError, ModelBackend, backend_with
from wattloop_operator.api.recurring_training_job_status import LearnSince
from wattloop_operator.domain.snapshot import Failure
from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET

KEEP_ALL: dict[str, Any] = {"successfulRunsHistoryLimit": 1000, "failedRunsHistoryLimit": 1000, "retries": 0}


def run_once(backend: ModelBackend) -> None:
    backend.reconcile()
    (name,) = backend.running
    end(backend, name)
    backend.reconcile()
    backend.advance(3600)


def end(backend: ModelBackend, name: str) -> None:
    backend.run_workload(name)
    backend.report(name, epoch=10, metric=0.95, joules=1000.0, seconds=10.0, finished=True)
    backend.end_workload(name)


def forget(backend: ModelBackend, text: str) -> None:
    backend.change_spec(learnSince=text)


def learned(backend: ModelBackend) -> list[tuple[int, int]]:
    """Recurrence and batch size of each observation that the next decision uses; from either memory."""
    return backend.read_from_either_memory(
        lambda context: [(each.recurrence, each.batch_size) for each in context.observations]
    )


@pytest.fixture
def backend() -> ModelBackend:
    """A job that learned from four recurrences with two batch sizes."""
    made = backend_with(**KEEP_ALL, batchSize={"default": 64, "candidates": [32, 64]})
    for _ in range(4):
        run_once(made)
    made.edit(suspend=True)
    assert len({size for _, size in learned(made)}) == 2
    return made


def test_another_text_forgets_all_batch_sizes_once(backend: ModelBackend) -> None:
    forget(backend, "data of March")
    backend.reconcile()
    assert learned(backend) == []
    assert backend.job.status.learn_since == LearnSince(text="data of March", recurrence=4)
    (event,) = [each for each in backend.events if each.reason == "Forgotten"]
    assert "the recurrences before 4 are forgotten (spec.learnSince data of March)" in event.message
    assert (backend.job.status.arms, backend.job.status.best) == ((), None)
    assert "DefaultCost" in backend.savings

    backend.change_spec(suspend=False)
    run_once(backend)
    assert learned(backend) == [(4, 64)]
    assert len([each for each in backend.events if each.reason == "Forgotten"]) == 1


def test_the_status_states_since_when_the_job_learns_and_what_was_carried_over(backend: ModelBackend) -> None:
    def learning() -> str:
        backend.reconcile()
        return backend.job.status.learning

    attempts = "epochs to the target are learned from {} attempt(s)".format
    since = "; the first with the present target is of recurrence "
    assert learning() == f"{attempts(4)}{since}0"
    objective = backend.job.to_wire()["spec"]["objective"]
    backend.change_spec(objective={**objective, "target": {"metric": "accuracy", "threshold": "0.92"}})
    text = "4 attempt(s) with another target count through the curve of their metric"
    assert learning() == f"{attempts(4)}; {text}"
    backend.change_spec(suspend=False)
    run_once(backend)
    backend.change_spec(suspend=True)
    assert learning() == f"{attempts(5)}{since}4; {text}"
    forget(backend, "first")
    assert learning() == f"{attempts(0)}; 5 attempt(s) are forgotten"


def test_a_text_that_a_job_is_created_with_forgets_nothing() -> None:
    backend = backend_with(learnSince="first")
    run_once(backend)
    assert learned(backend) == [(0, 64)]
    assert backend.events == []


def test_what_was_forgotten_stays_forgotten_without_the_text(backend: ModelBackend) -> None:
    forget(backend, "first")
    backend.reconcile()
    forget(backend, "")
    backend.reconcile()
    assert learned(backend) == []


def test_a_run_in_flight_is_forgotten(backend: ModelBackend) -> None:
    backend.edit(suspend=False)
    (name,) = backend.running
    forget(backend, "first")
    backend.reconcile()
    end(backend, name)
    backend.reconcile()
    assert learned(backend) == []


@pytest.mark.parametrize("seconds", [-7200, 7200])
def test_a_clock_that_jumps_does_not_change_what_is_forgotten(backend: ModelBackend, seconds: int) -> None:
    forget(backend, "first")
    backend.reconcile()
    backend.change_spec(suspend=False, runRequest="now")
    backend.advance(seconds)
    run_once(backend)
    assert [recurrence for recurrence, _ in learned(backend)] == [4]


def test_another_text_frees_a_job_whose_batch_sizes_all_crashed() -> None:
    backend = backend_with(**KEEP_ALL, batchSize={"default": 64, "candidates": [64]})
    backend.reconcile()
    for _ in range(CRASH_BUDGET):
        (name,) = backend.running
        backend.run_workload(name)
        backend.end_attempt(name, Failure.CRASHED, "exit code 1")
        backend.reconcile_after(3600)
    assert backend.running == []
    forget(backend, "mended")
    backend.reconcile()
    assert len(backend.running) == 1
    assert backend.job.status.conditions[0].reason == "Scheduled"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("actions", range(4))
def test_a_kill_at_any_action_forgets_the_same(backend: ModelBackend, actions: int, after: bool) -> None:
    backend.change_spec(suspend=False)
    forget(backend, "first")
    backend.actions_until_killed, backend.killed_after = actions, after
    with pytest.raises(KilledError):
        backend.reconcile()
    backend.actions_until_killed = None
    backend.reconcile_after(1)
    assert backend.job.status.learn_since == LearnSince(text="first", recurrence=4)
    (name,) = backend.running
    assert (backend.recurrences[name].spec.index, backend.recurrences[name].spec.batch_size) == (4, 64)
    assert backend.recurrences[name].spec.decision.reason.startswith("nothing is known yet")
