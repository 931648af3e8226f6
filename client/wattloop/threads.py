"""Starts the threads of a process, and names those that have ended by themselves (docs/internals/threads.md)."""

import threading
from collections.abc import Callable

Check = Callable[[], str]
"""Returns the problem; empty if there is none."""

_watched: dict[object, tuple[str, Check]] = {}
_lock = threading.Lock()


def watch(name: str, check: Check) -> Callable[[], None]:
    """Ask a part of the process for its problem, from any thread, until the returned function is called."""
    entry = object()
    with _lock:
        _watched[entry] = (name, check)

    def release() -> None:
        with _lock:
            _watched.pop(entry, None)

    return release


def problem() -> str:
    """Why this process must be restarted; empty if it need not."""
    with _lock:
        checks = [check for _, check in _watched.values()]
    return next((found for check in checks if (found := check())), "")


class WatchedThread(threading.Thread):
    """A daemon thread that runs until its owner releases it, and then ends it.

    Args:
        run: What it does. An exception is logged; the message of the health check has only its type.
        may_return: Whether it may end by itself, when its work is done; an exception is a problem all the same.
    """

    def __init__(self, run: Callable[[], object], name: str, *, may_return: bool = False) -> None:
        super().__init__(target=run, name=name, daemon=True)
        self._may_return = may_return
        self._ended = False
        self._failure = ""
        self._release: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Start the thread, and watch it from now on."""
        self._release = watch(self.name, self._problem)
        try:
            super().start()
        except BaseException:
            self._release()
            raise

    def release(self) -> None:
        """Let it end from now on. Call this before anything that ends it."""
        self._release()

    def run(self) -> None:
        """Run the function."""
        try:
            super().run()
            if self._may_return:
                self._release()
        except BaseException as error:  # noqa: BLE001 - SystemExit would end the thread without a trace
            self._failure = f": {type(error).__name__}"
            _log_failure(self.name)
        finally:
            self._ended = True

    def _problem(self) -> str:
        return f"the thread {self.name} has ended{self._failure}" if self._ended else ""


class TaskThread(threading.Thread):
    """A daemon thread that does one piece of work and ends; its exception is logged, and ends nothing else."""

    def __init__(self, run: Callable[[], object], name: str) -> None:
        super().__init__(target=run, name=name, daemon=True)

    def run(self) -> None:
        """Run the function."""
        try:
            super().run()
        except Exception:  # noqa: BLE001 - it is logged there
            _log_failure(self.name)


def _log_failure(name: str) -> None:
    # Deferred: every command has threads, and few of them log.
    import logging  # noqa: PLC0415

    logging.getLogger(__name__).exception("unexpected failure of the thread %s", name)
