"""The first signal is a request, honoured at safe points and in waits; the second ends the process at once."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from wattloop import interruption
from wattloop.interruption import Interrupted, handled, raise_if_requested

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TIMEOUT_SECONDS = 60.0


def run_program(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that sends signals to itself."""
    begin = "import os, signal, sys, time\nfrom wattloop import interruption\ninterruption.install('wattloop try')\n"
    return subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )


@pytest.mark.parametrize("number", SIGNALS)
def test_a_program_that_has_begun_no_work_ends_at_once(number: int) -> None:
    done = run_program("signal.raise_signal(int(sys.argv[1]))\nprint('continues')", str(int(number)))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "wattloop try: interrupted\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_deferred_signal_raises_once_at_the_next_safe_point(number: int) -> None:
    steps = []

    def work() -> None:
        signal.raise_signal(number)
        steps.append("the instruction after it")
        assert interruption.requested()
        try:
            raise_if_requested()
        finally:
            raise_if_requested()
            steps.append("cleaning up")

    with handled(), pytest.raises(Interrupted), interruption.deferred():
        work()
    assert steps == ["the instruction after it", "cleaning up"]
    assert not interruption.requested()


def test_the_end_of_the_outermost_block_is_a_safe_point() -> None:
    reached = []

    def work() -> None:
        with interruption.deferred():
            signal.raise_signal(signal.SIGTERM)
        reached.append("the end of the outermost block")

    with handled(), pytest.raises(Interrupted), interruption.deferred():
        work()
    assert reached


def test_an_error_inside_the_block_takes_precedence_over_the_request() -> None:
    def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        raise ValueError("disk")

    with handled(), pytest.raises(ValueError, match="disk"), interruption.deferred():
        work()


def test_a_signal_ends_waits() -> None:
    happened = threading.Event()
    with handled(), interruption.deferred(), interruption.wake_on_request(happened.set):
        signal.raise_signal(signal.SIGHUP)
        assert happened.wait(TIMEOUT_SECONDS)
        with pytest.raises(Interrupted):
            interruption.sleep(TIMEOUT_SECONDS)


def test_a_signal_cancels_a_blocking_call_and_waits_for_its_end() -> None:
    reading, writing = os.pipe()
    with handled(), interruption.deferred():
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(Interrupted):
            interruption.call_cancellable(lambda: os.read(reading, 1), lambda: os.close(writing))
    os.close(reading)


def test_a_call_without_a_signal_returns_its_result_or_raises_its_error() -> None:
    assert interruption.call_cancellable(lambda: 3, lambda: None) == 3
    with pytest.raises(FileNotFoundError):
        interruption.call_cancellable(lambda: os.stat("/no/such"), lambda: None)  # noqa: PTH116


def test_other_threads_are_not_interrupted() -> None:
    raised: list[BaseException] = []

    def pass_a_safe_point() -> None:
        try:
            raise_if_requested()
        except Interrupted as error:
            raised.append(error)

    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        thread = threading.Thread(target=pass_a_safe_point)
        thread.start()
        thread.join()
        assert raised == []
        raise_if_requested()

    with handled(), pytest.raises(Interrupted), interruption.deferred():
        work()


def test_an_immediate_end_removes_a_partial_file(tmp_path: Path) -> None:
    program = """
    from wattloop.files.atomic_write import open_atomic
    with open_atomic(sys.argv[1]) as stream:
        stream.write("half")
        assert len(os.listdir(os.path.dirname(sys.argv[1]))) == 1
        signal.raise_signal(signal.SIGTERM)
        print("continues")
    """
    done = run_program(program, str(tmp_path / "table.csv"))
    assert (done.returncode, done.stdout) == (130, "")
    assert list(tmp_path.iterdir()) == []


def test_a_second_signal_ends_a_deferred_block_at_once() -> None:
    program = """
    with interruption.deferred():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        print("one request", flush=True)
        interruption.SAME_REQUEST_SECONDS = 0.0
        signal.raise_signal(signal.SIGTERM)
        print("continues", flush=True)
    """
    done = run_program(program)
    message = "wattloop try: interrupted again: ended at once\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "one request\n", message)


def test_a_second_signal_ends_a_process_inside_compiled_code(tmp_path: Path) -> None:
    program = """
    import sqlite3, threading
    interruption.SAME_REQUEST_SECONDS = 0.0
    first, second = sqlite3.connect(sys.argv[1]), sqlite3.connect(sys.argv[1], timeout=600)
    first.execute("BEGIN EXCLUSIVE")
    def send_signals():
        # Two that arrive at once count as one.
        while True:
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)
    with interruption.deferred():
        threading.Thread(target=send_signals, daemon=True).start()
        second.execute("BEGIN EXCLUSIVE")
    """
    done = run_program(program, str(tmp_path / "a.db"))
    assert (done.returncode, done.stderr) == (130, "wattloop try: interrupted again: ended at once\n")


def test_a_signal_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        done = run_program("signal.raise_signal(signal.SIGHUP)\nprint('continues')")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (done.returncode, done.stdout) == (0, "continues\n")


def test_a_signal_while_the_interpreter_exits_does_not_change_the_exit_code() -> None:
    # The interpreter clears modules after the last atexit handler.
    program = """
    import sys
    from wattloop.commands import entry
    class Late:
        def __del__(self, end=os.kill, pid=os.getpid()):
            end(pid, 15)
    sys.modules["late"] = Late()
    sys.exit(entry.main(["--version"]))
    """
    done = run_program(program)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_previous_handlers_are_restored_after_the_block() -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with handled():
        assert all(signal.getsignal(each) is not handler for each, handler in zip(SIGNALS, before, strict=True))
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_the_thread_restarts_after_the_block_and_ends_waits_again() -> None:
    woken = threading.Event()

    def work() -> None:
        with interruption.without_thread():
            assert [each.name for each in threading.enumerate() if "interruption" in each.name] == []
        with interruption.wake_on_request(woken.set):
            signal.raise_signal(signal.SIGTERM)
            assert woken.wait(TIMEOUT_SECONDS)

    with handled(), pytest.raises(Interrupted), interruption.deferred():
        work()
    assert woken.is_set()


def test_a_signal_while_the_thread_is_stopped_is_a_request() -> None:
    def work() -> None:
        with interruption.without_thread():
            signal.raise_signal(signal.SIGTERM)
        assert interruption.requested()

    with handled(), pytest.raises(Interrupted), interruption.deferred():
        work()
