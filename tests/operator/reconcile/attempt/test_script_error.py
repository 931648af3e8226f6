"""An error in a script that shows after epochs: no batch size is blamed for it, and no retry pays for it again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.progress import FailedRank, Progress
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.learning import job_observations

TRACEBACK = 'Traceback (most recent call last):\n  File "/app/train.py", line 90, in <module>\n    plot()\n'
TYPO = f"{TRACEBACK}NameError: name 'histroy' is not defined\n"


def fail_after_epochs(backend: ModelBackend, output: str = TYPO, exit_code: int = 1, **state: Any) -> str:
    """Start the oldest attempt without a result, and let it fail after three epochs; returns its name."""
    name = backend.start_attempt()
    backend.advance(300)
    backend.report(name, epoch=3, metric=0.5)
    backend.end_workload(name, Failure.CRASHED, f"exit code {exit_code}", exit_code=exit_code, output=output)
    backend.workloads[name] = replace(backend.workloads[name], **state)
    backend.reconcile()
    return name


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (TYPO, "NameError: name 'histroy' is not defined; fix the script"),
        (f"{TRACEBACK}ModuleNotFoundError: No module named 'matplotlib'\n", "'matplotlib'; install the package"),
        (f"{TRACEBACK}AttributeError: module 'torch' has no attribute 'sav'\n", "'sav'; fix the script"),
    ],
)
def test_an_error_of_the_script_alone_blames_no_batch_size_and_is_not_retried(
    backend: ModelBackend, output: str, message: str
) -> None:
    status = backend.recurrences[fail_after_epochs(backend, output)].status
    assert status.result is Result.SCRIPT_ERROR
    assert message in status.message
    assert "no batch size is blamed" in status.message
    assert backend.running == []
    assert job_observations.observations(tuple(backend.records.values())) == ()
    for index in range(1, 5):
        backend.advance(3600)
        fail_after_epochs(backend, output)
        assert backend.running == []
        assert len(backend.recurrences) == index + 1
    assert {each.spec.batch_size for each in backend.recurrences.values()} == {backend.job.spec.batch_size.default}
    assert (backend.job.status.state, backend.job.status.failure) == ("Failing", "ScriptError")


@pytest.mark.parametrize(
    ("output", "exit_code", "state"),
    [
        (f"{TRACEBACK}KeyError: 'x'\n", 1, {}),
        (f"{TRACEBACK}AttributeError: 'NoneType' object has no attribute 'x'\n", 1, {}),
        # A process that loads data misses a file of another one, which was killed for its memory.
        (f"{TRACEBACK}FileNotFoundError: [Errno 2] No such file or directory: '/torch_91'\n", 1, {}),
        (f"{TRACEBACK}RuntimeError: CUDA out of memory\n\nDuring handling:\n\n{TYPO}", 1, {}),
        (TYPO, 1, {"killed_ranks": (1,)}),
        (TYPO, 137, {}),
        ("", 2, {}),
        ("", 1, {}),
    ],
)
def test_what_a_batch_size_may_cause_counts_against_it(
    backend: ModelBackend, output: str, exit_code: int, state: dict[str, Any]
) -> None:
    name = fail_after_epochs(backend, output, exit_code, **state)
    assert backend.recurrences[name].status.result is Result.CRASHED


KEY_ERROR = f"{TRACEBACK}KeyError: 'x'\n"


def test_a_lack_of_memory_counts_although_the_next_attempt_shows_a_mistake(backend: ModelBackend) -> None:
    fail_after_epochs(backend, f"{TRACEBACK}RuntimeError: CUDA out of memory\n")
    name = fail_after_epochs(backend, TYPO)
    assert backend.recurrences[name].status.result is Result.SCRIPT_ERROR
    assert backend.counted_crashes == [64]


def test_a_batch_size_that_fails_at_one_place_again_does_not_prove_a_mistake_of_the_script(
    backend: ModelBackend,
) -> None:
    for epoch in (5, 3, 4):
        name = backend.start_attempt()
        while backend.recurrences[name].spec.batch_size != 64:
            backend.report(name, epoch=10, metric=0.95, finished=True)
            backend.end_workload(name)
            backend.reconcile()
            backend.advance(3600)
            name = backend.start_attempt()
        backend.report(name, epoch=epoch, metric=0.5)
        backend.end_workload(name, Failure.CRASHED, "exit code 1", exit_code=1, output=KEY_ERROR)
        backend.reconcile()
        assert backend.recurrences[name].status.result is Result.CRASHED


def test_an_exception_at_the_same_place_at_two_batch_sizes_blames_neither(backend: ModelBackend) -> None:
    names = [fail_after_epochs(backend, KEY_ERROR) for _ in range(2)]
    attempts = [backend.recurrences[name] for name in names]
    assert [(each.spec.batch_size, each.status.result) for each in attempts] == [(64, "Crashed"), (32, "ScriptError")]
    assert "KeyError at the same place as before; fix the script; no batch size is blamed" in attempts[1].status.message
    assert backend.running == []
    backend.advance(3600)
    name = fail_after_epochs(backend, KEY_ERROR)
    assert (backend.recurrences[name].status.result, backend.running) == ("ScriptError", [])
    assert backend.counted_crashes == []


def test_a_disruption_in_between_changes_nothing_of_it(backend: ModelBackend) -> None:
    names = [fail_after_epochs(backend, KEY_ERROR)]
    disrupted = backend.start_attempt()
    backend.end_workload(disrupted, Failure.DISRUPTED, "its node was taken back")
    backend.reconcile()
    names.append(fail_after_epochs(backend, KEY_ERROR))
    attempts = [backend.recurrences[name] for name in names]
    assert [(each.spec.batch_size, each.status.result) for each in attempts] == [(64, "Crashed"), (32, "ScriptError")]
    assert backend.counted_crashes == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (KEY_ERROR, KEY_ERROR.replace("line 90", "line 80")),
        (f"{TRACEBACK}ValueError: Input contains NaN\n", f"{TRACEBACK}ValueError: Input contains NaN\n"),
        (f"{TRACEBACK}RuntimeError: a worker was killed\n", f"{TRACEBACK}RuntimeError: a worker was killed\n"),
    ],
)
def test_two_exceptions_that_show_no_mistake_count_against_both_batch_sizes(
    backend: ModelBackend, first: str, second: str
) -> None:
    names = [fail_after_epochs(backend, output) for output in (first, second)]
    assert {backend.recurrences[name].status.result for name in names} == {Result.CRASHED}
    learned = job_observations.observations(tuple(backend.records.values()))
    assert [each.outcome.value for each in learned] == ["crashed", "crashed"]


def test_a_batch_size_that_trains_after_another_one_failed_leaves_the_crash_to_it(backend: ModelBackend) -> None:
    fail_after_epochs(backend, KEY_ERROR)
    name = backend.start_attempt()
    reason = "batch size 32, to find out whether attempt 0 failed by its batch size 64"
    assert backend.recurrences[name].spec.decision.reason == reason
    backend.report(name, epoch=5, metric=0.95, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    assert backend.counted_crashes == [64]


@pytest.mark.parametrize(
    ("failed", "result"),
    [
        (FailedRank(rank=0, failure="NameError"), Result.SCRIPT_ERROR),
        (FailedRank(rank=0, failure="NameError", consequence=True), Result.CRASHED),
        (FailedRank(rank=0, failure="KeyError"), Result.CRASHED),
    ],
)
def test_what_the_client_reported_tells_where_there_is_no_output(
    backend: ModelBackend, failed: FailedRank, result: Result
) -> None:
    name = backend.start_attempt()
    recurrence = backend.recurrences[name]
    progress = Progress(epoch=3.0, first_failure=failed)
    backend.recurrences[name] = recurrence.model_copy(update={"progress": progress})
    backend.end_workload(name, Failure.CRASHED, "exit code 1", exit_code=1)
    backend.reconcile()
    assert backend.recurrences[name].status.result is result


def test_a_job_without_a_calendar_waits_after_it(backend_with: Callable[..., ModelBackend]) -> None:
    backend = backend_with(continuous=True)
    fail_after_epochs(backend)
    assert backend.running == []
    ready = next(each for each in backend.job.status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "ScriptError")
    assert backend.job.status.next_start is not None
