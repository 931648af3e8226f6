"""Signals are a request: honoured at safe points, waits are woken, and a second one ends the process at once."""

from __future__ import annotations

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
END_SECONDS = 60.0


def ended(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A program of its own, which signals itself."""
    begin = "import os, signal, sys, time\nfrom wattloop import interruption\ninterruption.install('wattloop try')\n"
    return subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(program), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=END_SECONDS,
    )


@pytest.mark.parametrize("number", SIGNALS)
def test_what_has_begun_nothing_ends_at_once(number: int) -> None:
    done = ended("signal.raise_signal(int(sys.argv[1]))\nprint('goes on')", str(int(number)))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "wattloop try: interrupted\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_deferred_signal_is_raised_at_the_next_safe_point_and_once(number: int) -> None:
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


def test_an_error_that_is_raised_meanwhile_is_not_hidden() -> None:
    def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        raise ValueError("disk")

    with handled(), pytest.raises(ValueError, match="disk"), interruption.deferred():
        work()


def test_waits_are_woken() -> None:
    happened = threading.Event()
    with handled(), interruption.deferred(), interruption.wake_on_request(happened.set):
        signal.raise_signal(signal.SIGHUP)
        assert happened.wait(END_SECONDS)
        with pytest.raises(Interrupted):
            interruption.sleep(END_SECONDS)


def test_a_call_that_blocks_is_cancelled_and_waited_for() -> None:
    reading, writing = os.pipe()
    with handled(), interruption.deferred():
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(Interrupted):
            interruption.call_cancellable(lambda: os.read(reading, 1), lambda: os.close(writing))
    os.close(reading)


def test_a_call_gives_its_result_and_its_error_where_nothing_is_asked() -> None:
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


def test_an_end_at_once_removes_what_is_not_whole(tmp_path: Path) -> None:
    program = """
    from wattloop.files.atomic_write import open_atomic
    with open_atomic(sys.argv[1]) as stream:
        stream.write("half")
        assert len(os.listdir(os.path.dirname(sys.argv[1]))) == 1
        signal.raise_signal(signal.SIGTERM)
        print("goes on")
    """
    done = ended(program, str(tmp_path / "table.csv"))
    assert (done.returncode, done.stdout) == (130, "")
    assert list(tmp_path.iterdir()) == []


def test_a_second_signal_ends_what_is_deferred() -> None:
    program = """
    with interruption.deferred():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        print("one request", flush=True)
        interruption.SAME_REQUEST_SECONDS = 0.0
        signal.raise_signal(signal.SIGTERM)
        print("goes on", flush=True)
    """
    done = ended(program)
    words = "wattloop try: interrupted again: ended at once\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "one request\n", words)


def test_a_second_signal_ends_it_inside_compiled_code_too(tmp_path: Path) -> None:
    program = """
    import sqlite3, threading
    interruption.SAME_REQUEST_SECONDS = 0.0
    first, second = sqlite3.connect(sys.argv[1]), sqlite3.connect(sys.argv[1], timeout=600)
    first.execute("BEGIN EXCLUSIVE")
    for wait in (0.2, 0.4):
        threading.Timer(wait, os.kill, (os.getpid(), signal.SIGINT)).start()
    with interruption.deferred():
        second.execute("BEGIN EXCLUSIVE")
    """
    done = ended(program, str(tmp_path / "a.db"))
    assert (done.returncode, done.stderr) == (130, "wattloop try: interrupted again: ended at once\n")


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        done = ended("signal.raise_signal(signal.SIGHUP)\nprint('goes on')")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (done.returncode, done.stdout) == (0, "goes on\n")


def test_a_signal_while_the_interpreter_ends_leaves_the_exit_code() -> None:
    # Modules are taken down after the last handler of atexit.
    program = """
    import sys
    from wattloop.commands import entry
    class Late:
        def __del__(self, end=os.kill, pid=os.getpid()):
            end(pid, 15)
    sys.modules["late"] = Late()
    sys.exit(entry.main(["--version"]))
    """
    done = ended(program)
    assert (done.returncode, done.stderr) == (0, "")


def test_handlers_are_as_before_after_the_block() -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with handled():
        assert all(signal.getsignal(each) is not handler for each, handler in zip(SIGNALS, before, strict=True))
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_without_the_thread_signals_wait_and_after_it_waits_are_woken_again() -> None:
    woken = threading.Event()

    def work() -> None:
        with interruption.without_thread():
            assert [each.name for each in threading.enumerate() if "interruption" in each.name] == []
        with interruption.wake_on_request(woken.set):
            signal.raise_signal(signal.SIGTERM)
            assert woken.wait(END_SECONDS)

    with handled(), pytest.raises(Interrupted), interruption.deferred():
        work()
    assert woken.is_set()


def test_a_signal_in_the_time_without_the_thread_is_a_request() -> None:
    def work() -> None:
        with interruption.without_thread():
            signal.raise_signal(signal.SIGTERM)
        assert interruption.requested()

    with handled(), pytest.raises(Interrupted), interruption.deferred():
        work()
