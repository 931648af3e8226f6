"""Maps a function over items in worker processes.

The workers end when this process ends or is asked to end, so that no signal leaves one behind.
"""

import multiprocessing
import os
import queue
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from wattloop import interruption
from wattloop.threads import TaskThread

# Items of one part travel together, and with them once what they share, such as a trace. A process gets this many
# parts, so that none waits long for another and progress is seen.
PARTS_OF_PROCESS = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_processes(
    call: Callable[[Item], Result], items: Sequence[Item], count: int, on_done: Callable[[Item], None]
) -> list[Result]:
    """Call a function for each item in worker processes.

    Args:
        call: A function of a module that the workers can import.
        items: Arguments, one per call.
        count: Number of processes.
        on_done: Called in this process with each item whose call has returned.

    Returns:
        The results, in the order of the items.

    Raises:
        wattloop.interruption.Interrupted: The program was asked to end; the workers have ended.
    """
    finished: queue.SimpleQueue[Future[list[Result]] | None] = queue.SimpleQueue()
    with (
        interruption.deferred(),
        interruption.wake_on_request(lambda: finished.put(None)),
        _executor(count) as executor,
    ):
        futures: dict[Future[list[Result]], Sequence[Item]] = {}
        size = max(len(items) // (count * PARTS_OF_PROCESS), 1)
        for start in range(0, len(items), size):
            part = items[start : start + size]
            interruption.raise_if_requested()
            with _signals_blocked():
                future = executor.submit(_call_each, call, part)
            futures[future] = part
            future.add_done_callback(finished.put)
        for _ in range(len(futures)):
            while (ended := finished.get()) is None:
                interruption.raise_if_requested()
            interruption.raise_if_requested()
            ended.result()
            for item in futures[ended]:
                on_done(item)
        return [result for future in futures for result in future.result()]


def _call_each(call: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [call(item) for item in items]


@contextmanager
def _executor(count: int) -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    # This also starts the resource tracker, which must ignore the signals, too.
    with _signals_blocked():
        executor = ProcessPoolExecutor(count, mp_context=context, initializer=_initialize_worker)
    try:
        yield executor
    except BaseException:
        # The results are no longer needed.
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block signals while processes start, so that a signal to the whole terminal finds them ignoring it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, interruption.SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _initialize_worker() -> None:
    """Make a worker ignore signals, which the parent handles, and end when the parent ends."""
    interruption.ignore_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, interruption.SIGNALS)
    TaskThread(_end_with_parent, "end-with-parent").start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process was started by multiprocessing"
    parent.join()
    os._exit(interruption.EXIT_INTERRUPTED)
