"""Calls spread over processes, which end with this one and with a request to end."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from wattloop import interruption

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_processes(
    call: Callable[[Item], Result], items: Sequence[Item], count: int, on_done: Callable[[Item], None]
) -> list[Result]:
    """Call a function for each item, in other processes.

    Args:
        call: A function of a module, which the other processes import.
        items: What it is called with.
        count: How many processes.
        on_done: Called here with each item whose call has returned.

    Returns:
        The results, in the order of the items.

    Raises:
        wattloop.interruption.Interrupted: The program was asked to end; the other processes have ended.
    """
    finished: queue.SimpleQueue[Future[Result] | None] = queue.SimpleQueue()
    with (
        interruption.deferred(),
        interruption.wake_on_request(lambda: finished.put(None)),
        _executor(count) as executor,
    ):
        futures: dict[Future[Result], Item] = {}
        for item in items:
            interruption.raise_if_requested()
            with _signals_blocked():
                future = executor.submit(call, item)
            futures[future] = item
            future.add_done_callback(finished.put)
        for _ in items:
            future = _next(finished)
            future.result()
            on_done(futures[future])
        return [future.result() for future in futures]


def _next(finished: queue.SimpleQueue[Future[Result] | None]) -> Future[Result]:
    while True:
        future = finished.get()
        interruption.raise_if_requested()
        if future is not None:
            return future


@contextmanager
def _executor(count: int) -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    # It starts the process that removes semaphores, too.
    with _signals_blocked():
        executor = ProcessPoolExecutor(count, mp_context=context, initializer=_serve_parent_alone)
    try:
        yield executor
    except BaseException:
        # Their results are of no use any more.
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Start processes during the block: what ends all processes of a terminal reaches them when they ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, interruption.SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve_parent_alone() -> None:
    """In one of the processes: leave signals to the parent, and end with it, however it ends."""
    interruption.ignore_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, interruption.SIGNALS)
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process was started by multiprocessing"
    parent.join()
    os._exit(interruption.EXIT_INTERRUPTED)
