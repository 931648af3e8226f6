"""An error in a script that shows after epochs: no batch size is blamed for it, and no retry pays for it again."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import ModelBackend, backend_with
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.attempt.start_failure import (
    MAX_QUOTED_CHARACTERS,
    MAX_QUOTED_LINES,
    is_out_of_memory,
    printed_error,
    quoted_output,
)
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
    assert backend.recurrences[fail_after_epochs(backend, TYPO)].status.result is Result.SCRIPT_ERROR
    assert backend.counted_crashes == [64]


def test_a_batch_size_that_fails_at_one_place_again_does_not_prove_a_mistake_of_the_script(
    backend: ModelBackend,
) -> None:
    for epoch in (5, 3, 4):
        name = backend.start_attempt()
        while backend.recurrences[name].spec.batch_size != 64:
            backend.finish(name, epoch=10, metric=0.95)
            backend.advance(3600)
            name = backend.start_attempt()
        backend.report(name, epoch=epoch, metric=0.5)
        assert (
            backend.end_attempt(name, Failure.CRASHED, "exit code 1", exit_code=1, output=KEY_ERROR).result
            is Result.CRASHED
        )


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
    backend.end_attempt(backend.start_attempt(), Failure.DISRUPTED, "its node was taken back")
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
    backend.finish(name, epoch=5, metric=0.95)
    assert backend.counted_crashes == [64]


def test_a_job_without_a_calendar_waits_after_it() -> None:
    backend = backend_with(continuous=True)
    fail_after_epochs(backend)
    assert backend.running == []
    ready = next(each for each in backend.job.status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "ScriptError")
    assert backend.job.status.next_start is not None


IMPORT_TRACEBACK = 'Traceback (most recent call last):\n  File "/app/train.py", line 3, in <module>\n    run()\n'
MISSING = f"{IMPORT_TRACEBACK}ModuleNotFoundError: No module named 'torhc'\n"
RANKS = "".join(f"[rank1]: {line}\n" for line in MISSING.splitlines())
LAUNCHER = (
    'Traceback (most recent call last):\n  File "/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\n"
)
PEER = f"{IMPORT_TRACEBACK}torch.distributed.DistNetworkError: The client socket has failed to connect\n"
SHUTDOWN = (
    "Exception ignored in: <function Loader.__del__ at 0x7f>\n"
    f"{IMPORT_TRACEBACK}ImportError: sys.meta_path is None, Python is likely shutting down\n"
)
CHAINED = (
    f"{MISSING}\nDuring handling of the above exception, another one occurred:\n\n{IMPORT_TRACEBACK}KeyError: 'a'\n"
)
USAGE = "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --bach 3\n"
SYNTAX = '  File "/app/train.py", line 1\n    for x in y print(x)\n               ^^^^^\nSyntaxError: invalid syntax\n'


@pytest.mark.parametrize(
    ("output", "name", "text"),
    [
        (MISSING, "ModuleNotFoundError", "ModuleNotFoundError: No module named 'torhc'"),
        (f"epoch 0\n{MISSING}Sentry is attempting to send 2 events\n", "ModuleNotFoundError", "torhc"),
        (RANKS + LAUNCHER, "ModuleNotFoundError", "torhc"),
        (MISSING + PEER, "ModuleNotFoundError", "torhc"),
        (f"{IMPORT_TRACEBACK}RuntimeError: CUDA error\n{SHUTDOWN}", "RuntimeError", "CUDA error"),
        (CHAINED, "KeyError", "KeyError: 'a'"),
        (SYNTAX, "SyntaxError", "invalid syntax"),
        (
            f"{IMPORT_TRACEBACK}torch.cuda.OutOfMemoryError: CUDA out of memory.",
            "OutOfMemoryError",
            "CUDA out of memory",
        ),
        (f"{IMPORT_TRACEBACK}KeyboardInterrupt\n", "KeyboardInterrupt", "KeyboardInterrupt"),
        (USAGE, "", "train.py: error: unrecognized arguments: --bach 3"),
        ("sh: 1: pyton: not found\n", "", "pyton: not found"),
        ("bash: line 1: pyton: command not found\n", "", "command not found"),
        ("python: can't open file '/a/b.py': [Errno 2] No such file or directory\n", "FileNotFoundError", "b.py"),
        ("/usr/bin/python3.12: No module named trainer\n", "ModuleNotFoundError", "trainer"),
    ],
)
def test_the_exception_of_the_program_and_not_that_of_its_launcher_is_found(output: str, name: str, text: str) -> None:
    found = printed_error(output)
    assert found.name == name
    assert text in found.text


@pytest.mark.parametrize("output", ["", "epoch 3: loss 0.2\n", "ValueError: printed by the script itself\n", LAUNCHER])
def test_output_without_a_traceback_shows_no_error(output: str) -> None:
    assert printed_error(output) is None


def test_the_place_of_an_error_is_its_innermost_line() -> None:
    output = (
        'Traceback:\n  File "a.py", line 3, in <module>\n    f()\n  File "b.py", line 7, in f\n    g()\nKeyError: 1\n'
    )
    assert printed_error(output).place == "b.py:7 KeyError"


@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 3 GiB",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
        "container train ran out of memory (OOMKilled, exit code 137)",
        "It is possible that dataloader's workers are out of shared memory",
    ],
)
def test_a_lack_of_memory_is_known_in_the_words_of_each_library(text: str) -> None:
    assert is_out_of_memory(text)


def test_a_line_of_the_script_in_a_traceback_names_no_lack_of_memory() -> None:
    source = "    except torch.cuda.OutOfMemoryError:\n"
    assert not is_out_of_memory(f"{IMPORT_TRACEBACK}{source}SyntaxError: expected 'except' or 'finally' block\n")


@given(st.text() | st.text('Traceback(mostrecentcalllast): \n"File ,l0123456789[]rank\x1b\u202e'))
def test_untrusted_output_never_fails_and_its_quotes_are_short_and_printable(output: str) -> None:
    found = printed_error(output)
    assert found is None or (found.text + found.place).isprintable()
    lines = quoted_output(output).split("\n")[1:]
    assert len(lines) <= MAX_QUOTED_LINES
    # An escape has up to ten characters.
    assert all(line.isprintable() and len(line) <= 10 * MAX_QUOTED_CHARACTERS + 3 for line in lines)
