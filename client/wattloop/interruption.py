"""Handles SIGINT, SIGTERM and SIGHUP as a request to end, so that no signal raises at an arbitrary instruction.

A command that has begun no work ends at once: the handler runs the functions of `cleanup_on_exit` and
exits with 130. Inside `deferred` the first signal only sets a request. The code honours the request at
its next safe point (`raise_if_requested`), and the request ends a wait (`wake_on_request`, `sleep`,
`call_cancellable`). A second signal ends the process at once, at any instruction. Another process must
then clean up what this one could not.

Signals within `SAME_REQUEST_SECONDS` are one request: a closing terminal, or a program that forwards
Ctrl-C to its children, sends several. A signal that is ignored at the start (``nohup``) stays ignored.
"""

import contextlib
import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

from wattloop.threads import TaskThread, WatchedThread

EXIT_INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME_REQUEST_SECONDS = 0.1
# The handler runs between two instructions of the main thread. If that thread is inside a longer call of
# compiled code, another thread ends the process after this time.
MAX_HANDLER_DELAY_SECONDS = 1.0
STANDARD_ERROR = 2
# No signal has this number.
END_OF_THREAD = b"\0"
SHOW_CURSOR = b"\x1b[?25h"

Result = TypeVar("Result")


class Interrupted(KeyboardInterrupt):
    """The program was asked to end. Raised once, at a safe point of the main thread."""


class _Interruption:
    """The handlers of one process, and the thread that wakes waits."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.deferrals = 0
        self.signal_number: int | None = None
        self.accepted = False
        self.wakers: list[Callable[[], object]] = []
        self.cleanups: list[Callable[[], object]] = []
        # When the handler, and when the thread, got the first signal.
        self._first_seconds: dict[str, float] = {}
        self._stopped = threading.Event()
        self._reading, self._writing = (_above_streams(end) for end in os.pipe())
        os.set_blocking(self._writing, False)
        self._handlers = {
            each: signal.signal(each, self._handle) for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN
        }
        self._wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self.start_thread()

    def start_thread(self) -> None:
        """Start the thread."""
        self._thread = WatchedThread(self._watch, "wattloop-interruption")
        self._thread.start()

    def end_thread(self) -> None:
        """End the thread; bytes of later signals wait in the pipe for the next thread."""
        self._thread.release()
        os.write(self._writing, END_OF_THREAD)
        self._thread.join()

    def remove(self) -> None:
        """Restore the previous handlers."""
        for each, handler in self._handlers.items():
            signal.signal(each, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._stopped.set()
        self.end_thread()
        os.close(self._writing)
        os.close(self._reading)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # Runs in the main thread at any instruction, so it must not take a lock or raise.
        if self._ends_at_once("handler", number):
            self._end_at_once()

    def _watch(self) -> None:
        while (byte := os.read(self._reading, 1)) and byte != END_OF_THREAD:
            if byte[0] not in self._handlers:
                continue
            ends = self._ends_at_once("thread", byte[0])
            for wake in list(self.wakers):
                wake()
            if ends and not self._stopped.wait(MAX_HANDLER_DELAY_SECONDS):
                self._end_at_once()

    def _ends_at_once(self, receiver: str, number: int) -> bool:
        """Count a signal; returns whether the process must end, for a second request or without work that has begun."""
        self.signal_number = self.signal_number or number
        now = time.monotonic()
        return now - self._first_seconds.setdefault(receiver, now) >= SAME_REQUEST_SECONDS or not self.deferrals

    def _end_at_once(self) -> None:
        for cleanup in reversed(self.cleanups):
            with contextlib.suppress(OSError):
                cleanup()
        again = " again: ended at once" if self.deferrals else ""
        with contextlib.suppress(OSError):
            cursor = SHOW_CURSOR if os.isatty(STANDARD_ERROR) else b""
            os.write(STANDARD_ERROR, cursor + f"{self.title}: interrupted{again}\n".encode())
        os._exit(EXIT_INTERRUPTED)


class _Process:
    """The process's `_Interruption`; None without handlers."""

    now: _Interruption | None = None


def install(title: str = "wattloop") -> None:
    """Handle the signals until the process ends; the title names the program when it ends at once."""
    if _Process.now is None:
        _Process.now = _Interruption(title)
    _Process.now.title = title


@contextlib.contextmanager
def handled(title: str = "wattloop") -> Iterator[None]:
    """Handle the signals during a block; if they are handled already, only the title changes.

    No effect outside the main thread.
    """
    installs = _Process.now is None and _in_main_thread()
    if _in_main_thread():
        install(title)
    try:
        yield
    finally:
        if installs and _Process.now is not None:
            _Process.now.remove()
            _Process.now = None


def ignore_signals() -> None:
    """Ignore the signals, at the end of a process whose exit code is known."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Treat the first signal as a request during a block. The end of the outermost block is a safe point.

    Raises:
        Interrupted: The program was asked to end, and the block ended without an exception.
    """
    state = _Process.now
    if state is None or not _in_main_thread():
        yield
        return
    state.deferrals += 1
    try:
        yield
    finally:
        state.deferrals -= 1
    if state.deferrals == 0:
        raise_if_requested()


@contextlib.contextmanager
def without_thread() -> Iterator[None]:
    """Run a block without the thread that watches for signals.

    The kernel applies some restrictions, such as a Landlock rule set, to one thread and to those that it
    starts later. Without another thread they cover the process. Signals during the block are handled
    after it.
    """
    state = _Process.now
    if state is not None:
        state.end_thread()
    try:
        yield
    finally:
        if state is not None:
            state.start_thread()


@contextlib.contextmanager
def cleanup_on_exit(cleanup: Callable[[], object]) -> Iterator[None]:
    """Call `cleanup` if a signal ends the process at once during a block, for example to remove a partial file.

    Args:
        cleanup: Called at an arbitrary instruction of the block, so it must not take a lock. Its
            `OSError` is ignored.
    """
    cleanups = [] if _Process.now is None else _Process.now.cleanups
    cleanups.append(cleanup)
    try:
        yield
    finally:
        cleanups.remove(cleanup)


@contextlib.contextmanager
def wake_on_request(wake: Callable[[], object]) -> Iterator[None]:
    """Call `wake` if the program is asked to end during a block, and immediately if it was asked before.

    Args:
        wake: Called from another thread, possibly several times; must be idempotent.
    """
    wakers = [] if _Process.now is None else _Process.now.wakers
    wakers.append(wake)
    try:
        if requested():
            wake()
        yield
    finally:
        wakers.remove(wake)


def requested() -> bool:
    """Whether the program was asked to end."""
    return requesting_signal() is not None


def requesting_signal() -> int | None:
    """The signal by which the program was asked to end; None if it was not."""
    return None if _Process.now is None else _Process.now.signal_number


def accept_request() -> bool:
    """Accept a request to end; returns True once, and the caller must then end the program."""
    state = _Process.now
    if state is None or state.signal_number is None or state.accepted or not _in_main_thread():
        return False
    state.accepted = True
    return True


def raise_if_requested() -> None:
    """A safe point, where no work is half done. Raises if the program was asked to end.

    Raises:
        Interrupted: The program was asked to end; only at the first safe point of the main thread.
    """
    if accept_request():
        raise Interrupted


def sleep(seconds: float | None) -> None:
    """Wait for this number of seconds, or until the program is asked to end; None: without a timeout.

    Raises:
        Interrupted: The program was asked to end.
    """
    woken = threading.Event()
    with wake_on_request(woken.set):
        woken.wait(seconds)
    raise_if_requested()


def call_cancellable(call: Callable[[], Result], cancel: Callable[[], object]) -> Result:
    """The result of a blocking call, such as one that waits for a process.

    Args:
        call: Runs in another thread.
        cancel: Called if the program is asked to end meanwhile; must make `call` return soon.

    Raises:
        Interrupted: The program was asked to end; `call` has returned.
    """
    # Deferred: few commands wait for a process.
    from concurrent.futures import Future  # noqa: PLC0415

    woken = threading.Event()
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            done.set_exception(error)
        finally:
            woken.set()

    thread = TaskThread(run, "wattloop-call")
    thread.start()
    with wake_on_request(woken.set):
        woken.wait()
    if not done.done() and accept_request():
        cancel()
        thread.join()
        raise Interrupted
    thread.join()
    return done.result()


def _above_streams(descriptor: int) -> int:
    """The same file at a number above those of the standard streams, which may be closed and opened later."""
    if descriptor > STANDARD_ERROR:
        return descriptor
    above = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, STANDARD_ERROR + 1)
    os.close(descriptor)
    return above


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
