"""Mistakes of a user end an attempt at its start: no batch size is blamed, and few attempts are spent."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend, backend_with
from support.backends.sample_reports import START
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.recurring_training_job_status import JobState
from wattloop_operator.domain.progress import FailedRank, Progress
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.job.start import MISTAKE
from wattloop_operator.reconcile.learning import job_observations

TRACEBACK = 'Traceback (most recent call last):\n  File "/app/train.py", line 3, in <module>\n    run()\n'
IMPORT = f"{TRACEBACK}ModuleNotFoundError: No module named 'torhc'\n"
CLIENT = f"{TRACEBACK}ModuleNotFoundError: No module named 'wattloop'\n"
OTHER_WATTLOOP = f"{TRACEBACK}AttributeError: module 'wattloop' has no attribute 'Run'\n"
MISSING_FILE = f"{TRACEBACK}FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'\n"
USAGE = "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --bach 3\n"
OUT_OF_MEMORY = f"{TRACEBACK}torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
CONTINUOUS: dict[str, Any] = {"continuous": True}


def fail_at_start(backend: ModelBackend, output: str = IMPORT, exit_code: int = 1) -> str:
    """Start the oldest attempt without a result, and end it as a mistake of its user does; returns its name."""
    name = backend.start_attempt()
    backend.advance(3)
    backend.end_attempt(name, Failure.CRASHED, f"exit code {exit_code}", exit_code=exit_code, output=output)
    return name


@pytest.mark.parametrize(
    ("exit_code", "output", "message"),
    [
        (1, IMPORT, "No module named 'torhc'; install the package in the Python that runs the script"),
        (1, CLIENT, "install the client wattloop in the Python that runs the script"),
        (1, OTHER_WATTLOOP, "install the client wattloop in the Python that runs the script"),
        (1, MISSING_FILE, "'data.csv'; check the path"),
        (1, f"{TRACEBACK}PermissionError: [Errno 13] Permission denied: '/data'\n", "check the path"),
        (1, "  File \"/a.py\", line 1\n    (\n    ^\nSyntaxError: '(' was never closed\n", "fix the script"),
        (1, f"{TRACEBACK}NameError: name 'trian' is not defined\n", "fix the script"),
        (2, USAGE, "unrecognized arguments: --bach 3; check the command in spec.template"),
        (2, "", "wrong arguments; check the command in spec.template"),
        (126, "sh: 1: ./train.py: Permission denied\n", "Permission denied; check the command"),
        (127, "sh: 1: pyton: not found\n", "pyton: not found; check the command"),
    ],
)
def test_a_mistake_is_named_with_its_remedy_and_blames_no_batch_size(
    backend: ModelBackend, exit_code: int, output: str, message: str
) -> None:
    status = backend.recurrences[fail_at_start(backend, output, exit_code)].status
    assert status.result is Result.START_FAILED
    assert message in status.message
    assert "no batch size is blamed" in status.message
    assert status.message.endswith("".join(f"\n  {line}" for line in output.splitlines() if line.strip()))
    assert job_observations.observations(tuple(backend.records.values())) == ()


def test_a_program_that_cannot_be_started_is_a_mistake(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    status = backend.end_attempt(
        name, Failure.NOT_STARTED, "container train could not be started (StartError): no pyton"
    )
    assert status.result is Result.START_FAILED
    assert "no pyton; check the command in spec.template" in status.message


def test_an_init_container_that_fails_twice_is_a_mistake_of_the_user(backend: ModelBackend) -> None:
    for attempt in range(2):
        backend.reconcile()
        (name,) = backend.running
        backend.end_attempt(
            name, Failure.INIT_FAILED, "init container fetch ended with exit code 3", exit_code=3, output="no route"
        )
        status = backend.recurrences[name].status
        assert status.result is Result.START_FAILED
        assert status.message == (
            "it failed at its start: init container fetch ended with exit code 3; fix this init container of "
            "spec.template; it runs before the training; no batch size is blamed. The last lines of its output:\n"
            "  no route"
        )
        assert (backend.running == []) is (attempt == 1)
    assert len({size for _, _, size in tries(backend)}) == 1
    assert job_observations.observations(tuple(backend.records.values())) == ()


def test_a_rank_that_was_killed_counts_against_the_batch_size(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    backend.end_workload(name, Failure.CRASHED, "exit code 1", exit_code=1, output=IMPORT)
    backend.workloads[name] = replace(backend.workloads[name], killed_ranks=(2,))
    backend.reconcile()
    assert (backend.recurrences[name].status.result, backend.recurrences[name].status.failure_place) == ("Crashed", "")


def after_an_epoch(backend: ModelBackend, name: str) -> None:
    backend.report(name, epoch=1, metric=0.2)


def after_a_quarter_of_an_hour(backend: ModelBackend, _name: str) -> None:
    backend.advance(901)


def at_once(_backend: ModelBackend, _name: str) -> None:
    return


@pytest.mark.parametrize(
    ("when", "exit_code", "output"),
    [
        (after_an_epoch, 1, MISSING_FILE),
        (after_a_quarter_of_an_hour, 1, MISSING_FILE),
        (after_a_quarter_of_an_hour, 127, ""),
        (at_once, 1, OUT_OF_MEMORY),
        (at_once, 2, f"{OUT_OF_MEMORY}{IMPORT}"),
        (at_once, 1, ""),
        (at_once, 1, f"{TRACEBACK}UnboundLocalError: cannot access local variable 'loss'\n"),
        # Signals: a handled exception is in the output, and is not what ended the process.
        (at_once, -11, IMPORT),
        (at_once, 137, IMPORT),
        (at_once, 139, IMPORT),
    ],
)
def test_a_late_failure_a_lack_of_memory_and_a_signal_count_against_the_batch_size(
    backend: ModelBackend, when: Callable[[ModelBackend, str], None], exit_code: int, output: str
) -> None:
    name = backend.start_attempt()
    when(backend, name)
    assert (
        backend.end_attempt(name, Failure.CRASHED, f"exit code {exit_code}", exit_code=exit_code, output=output).result
        is Result.CRASHED
    )
    assert len(job_observations.observations(tuple(backend.records.values()))) == 1


@pytest.mark.parametrize(
    ("epoch", "failed", "result"),
    [
        (None, FailedRank(rank=0, failure="FileNotFoundError"), Result.START_FAILED),
        (None, FailedRank(rank=0, failure="FileNotFoundError", consequence=True), Result.CRASHED),
        (None, FailedRank(rank=0, failure="OutOfMemoryError"), Result.CRASHED),
        (3.0, FailedRank(rank=0, failure="NameError"), Result.SCRIPT_ERROR),
        (3.0, FailedRank(rank=0, failure="NameError", consequence=True), Result.CRASHED),
        (3.0, FailedRank(rank=0, failure="KeyError"), Result.CRASHED),
    ],
)
def test_without_an_output_the_reported_exception_decides(
    backend: ModelBackend, epoch: float | None, failed: FailedRank, result: Result
) -> None:
    name = backend.start_attempt()
    recurrence = backend.recurrences[name]
    backend.recurrences[name] = recurrence.model_copy(update={"progress": Progress(epoch=epoch, first_failure=failed)})
    assert backend.end_attempt(name, Failure.CRASHED, "exit code 1", exit_code=1).result is result


def tries(backend: ModelBackend) -> list[tuple[int, int, int]]:
    specs = [each.spec for each in backend.recurrences.values()]
    return sorted((spec.index, spec.attempt, spec.batch_size) for spec in specs)


def test_a_mistake_costs_two_attempts_of_one_batch_size_and_one_in_each_later_recurrence() -> None:
    backend = backend_with(failedRunsHistoryLimit=10)
    for _ in range(2):
        fail_at_start(backend)
    assert backend.running == []
    for _ in range(5):
        backend.advance(3600)
        fail_at_start(backend)
        assert backend.running == []
    default = backend.job.spec.batch_size.default
    assert tries(backend)[:2] == [(0, 0, default), (0, 1, default)]
    assert [(index, attempt) for index, attempt, _ in tries(backend)[2:]] == [(index, 0) for index in range(1, 6)]
    assert {size for _, _, size in tries(backend)} == {default}
    assert backend.job.status.totals.failed == 6
    ready = next(each for each in backend.job.status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "StartFailed")
    assert (backend.job.status.state, backend.job.status.failure) == (JobState.FAILING, "StartFailed")


def test_the_next_recurrence_of_a_fixed_script_goes_on_as_if_nothing_had_failed(backend: ModelBackend) -> None:
    for _ in range(2):
        fail_at_start(backend)
    backend.advance(3600)
    name = backend.start_attempt()
    assert backend.recurrences[name].spec.decision.reason.startswith("nothing is known yet")
    assert backend.finish(name, epoch=5, metric=0.95).result is Result.REACHED
    backend.advance(3600)
    # A new mistake is retried once again.
    for _ in range(2):
        fail_at_start(backend)
    assert backend.running == []


def test_a_mistake_in_a_new_template_is_retried_once(backend: ModelBackend) -> None:
    for _ in range(2):
        fail_at_start(backend)
    container = {"name": "train", "image": "digits:2"}
    backend.change_spec(template={"spec": {"template": {"spec": {"containers": [container]}}}})
    backend.advance(3600)
    for _ in range(2):
        fail_at_start(backend)
    assert [each[:2] for each in tries(backend)] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_deleted_history_brings_no_retry_back() -> None:
    backend = backend_with(failedRunsHistoryLimit=1)
    for _ in range(2):
        fail_at_start(backend)
    for _ in range(3):
        backend.advance(3600)
        fail_at_start(backend)
        assert backend.running == []
    assert [each[:2] for each in tries(backend)] == [(3, 0)]


def test_a_job_without_a_calendar_waits_longer_after_each_failure_at_its_start() -> None:
    backend = backend_with(**CONTINUOUS)
    for _ in range(2):
        fail_at_start(backend)
    waits = []
    for _ in range(9):
        assert backend.running == []
        ready = next(each for each in backend.job.status.conditions if each.type == "Ready")
        assert (ready.status, ready.reason) == ("False", "StartFailed")
        waits.append((backend.job.status.next_start - backend.now).total_seconds())
        backend.advance(waits[-1])
        fail_at_start(backend)
    assert waits == [120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]


@pytest.mark.parametrize(("epoch", "waits"), [(0, True), (3, False)])
def test_a_job_without_a_calendar_waits_after_a_training_that_reports_nothing_at_all(epoch: int, waits: bool) -> None:
    backend = backend_with(**CONTINUOUS)
    name = backend.start_attempt()
    if epoch:
        backend.report(name, epoch=epoch, finished=True)
    backend.end_workload(name)
    assert backend.status_of(name, 1).result is Result.MISSING_METRIC
    ready = next(each for each in backend.job.status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "MissingMetric")
    assert ready.message.startswith(MISTAKE) is waits
    assert (backend.running == []) is waits


def test_a_run_request_a_new_template_or_a_restart_ends_the_wait() -> None:
    for change in ("request", "template", "restart"):
        backend = backend_with(**CONTINUOUS)
        for _ in range(2):
            fail_at_start(backend)
        assert backend.running == []
        backend.advance(2)
        if change == "request":
            backend.change_spec(runRequest="again")
        elif change == "template":
            container = {"name": "train", "image": "digits:2"}
            backend.change_spec(template={"spec": {"template": {"spec": {"containers": [container]}}}})
        else:
            backend.observed_since = backend.now
        backend.reconcile()
        assert len(backend.running) == 1, change


def test_the_output_in_a_message_cannot_forge_lines_or_control_a_terminal(backend: ModelBackend) -> None:
    hostile = f"{TRACEBACK}ImportError: \x1b[2J\u202eevil{'x' * 100_000}\n"
    status = backend.recurrences[fail_at_start(backend, hostile)].status
    assert all(line.isprintable() for line in status.message.split("\n"))
    assert len(status.message) <= 4096
    assert "no batch size is blamed" in status.message


def test_a_mistake_that_ended_before_it_was_observed_to_run_is_known(backend: ModelBackend) -> None:
    backend.reconcile()
    (name,) = backend.running
    backend.end_workload(name, Failure.CRASHED, "exit code 1", exit_code=1, output=IMPORT)
    backend.workloads[name] = replace(backend.workloads[name], started_at=START)
    assert backend.status_of(name).result is Result.START_FAILED


KEY_ERROR = f"{TRACEBACK}KeyError: 'path'\n"
ELSEWHERE = KEY_ERROR.replace("line 3", "line 9")


def crashes_of(backend: ModelBackend) -> dict[int, int]:
    return {arm.batch_size: arm.crashes for arm in backend.job.status.arms if arm.crashes}


def results(backend: ModelBackend) -> list[tuple[int, str | None]]:
    ordered = sorted(backend.recurrences.values(), key=lambda each: each.order)
    return [(each.spec.batch_size, each.status.result) for each in ordered]


def test_a_crash_at_the_same_place_at_two_batch_sizes_blames_neither(backend: ModelBackend) -> None:
    fail_at_start(backend, KEY_ERROR)
    name = fail_at_start(backend, KEY_ERROR)
    assert results(backend) == [(64, "Crashed"), (16, "StartFailed")]
    message = backend.recurrences[name].status.message
    assert "exit code 1; KeyError at the same place as before; fix the script; no batch size is blamed" in message
    assert backend.running == []
    for _ in range(3):
        backend.advance(3600)
        fail_at_start(backend, KEY_ERROR)
        assert backend.running == []
    assert {result for _, result in results(backend)[-3:]} == {"StartFailed"}
    backend.reconcile()
    assert crashes_of(backend) == {}
    assert backend.counted_crashes == []


@pytest.mark.parametrize(
    ("codes", "name"), [((-11, 139), "SIGSEGV"), ((134, 134), "SIGABRT"), ((-4, -4), "SIGILL"), ((136, -8), "SIGFPE")]
)
def test_the_same_signal_before_the_first_epoch_at_two_batch_sizes_is_no_batch_sizes_fault(
    backend: ModelBackend, codes: tuple[int, int], name: str
) -> None:
    last = [fail_at_start(backend, "Fatal Python error\n", code) for code in codes][-1]
    assert results(backend) == [(64, "Crashed"), (16, "StartFailed")]
    message = backend.recurrences[last].status.message
    assert f"{name} before the first epoch, as before; a compiled library crashed" in message
    assert backend.running == []
    backend.advance(3600)
    fail_at_start(backend, "", codes[0])
    assert results(backend)[-1][1] == "StartFailed"
    assert backend.running == []
    assert crashes_of(backend) == {}
    assert backend.counted_crashes == []


@pytest.mark.parametrize(
    ("codes", "output"),
    [
        # The kernel kills for a lack of memory, and a lack of shared memory is a bus error.
        ((-9, 137), ""),
        ((-7, 135), ""),
        ((143, 143), ""),
        ((255, 255), ""),
        ((-11, -6), ""),
        ((-6, -6), "terminate called after throwing an instance of 'std::bad_alloc'\n"),
    ],
)
def test_other_signals_and_a_lack_of_memory_count_against_both_batch_sizes(
    backend: ModelBackend, codes: tuple[int, int], output: str
) -> None:
    for code in codes:
        fail_at_start(backend, output, code)
    assert [result for _, result in results(backend)] == ["Crashed", "Crashed", None]


@pytest.mark.parametrize("when", [after_an_epoch, after_a_quarter_of_an_hour])
def test_a_signal_later_than_the_start_counts_against_the_batch_size(
    backend: ModelBackend, when: Callable[[ModelBackend, str], None]
) -> None:
    for _ in range(2):
        name = backend.start_attempt()
        when(backend, name)
        backend.end_attempt(name, Failure.CRASHED, "killed by signal SIGSEGV", exit_code=-11)
    assert [result for _, result in results(backend)] == ["Crashed", "Crashed", None]


def test_a_crash_that_only_one_batch_size_has_counts_against_it(backend: ModelBackend) -> None:
    fail_at_start(backend, KEY_ERROR)
    name = backend.start_attempt()
    assert backend.recurrences[name].spec.batch_size == 16
    backend.finish(name, epoch=5, metric=0.95)
    assert results(backend) == [(64, "Crashed"), (16, "Reached")]
    assert crashes_of(backend) == {64: 1}


def test_a_crash_at_another_place_leaves_the_choice_to_the_policy(backend: ModelBackend) -> None:
    fail_at_start(backend, KEY_ERROR)
    fail_at_start(backend, ELSEWHERE)
    assert [result for _, result in results(backend)] == ["Crashed", "Crashed", None]
    reason = backend.recurrences[backend.running[0]].spec.decision.reason
    assert "to find out whether" not in reason


@pytest.mark.parametrize(
    "spec", [{"mode": "Advise"}, {"mode": "Fixed"}, {"batchSize": {"default": 64, "candidates": [64]}}]
)
def test_a_job_of_one_batch_size_never_runs_out_of_it_by_a_mistake(spec: dict[str, Any]) -> None:
    backend = backend_with(**spec)
    for _ in range(2):
        fail_at_start(backend, KEY_ERROR)
    assert results(backend) == [(64, "Crashed"), (64, "StartFailed")]
    assert backend.running == []


def test_a_batch_size_that_has_trained_is_tried_again_and_no_other(backend: ModelBackend) -> None:
    trained: set[int] = set()
    size = 0
    for _ in range(20):
        name = backend.start_attempt()
        size = backend.recurrences[name].spec.batch_size
        if size in trained:
            break
        trained.add(size)
        backend.finish(name, epoch=5, metric=0.95)
        backend.advance(3600)
    for _ in range(2):
        fail_at_start(backend, KEY_ERROR)
    assert results(backend)[-2:] == [(size, "Crashed"), (size, "StartFailed")]
