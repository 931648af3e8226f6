"""The watched parts of this process; ends a thread at an arbitrary instruction, as a defect in it may."""

import contextlib
import ctypes
import sys
import threading

from wattloop import threads


def watched_names() -> list[str]:
    """The names of all parts that are watched now, in the order of their start."""
    with threads._lock:
        return [name for name, _ in threads._watched.values()]


def end_thread(name: str) -> None:
    """Raise SystemExit in a thread, which Python ends without a message, and end its wait for a lock."""
    (thread,) = [each for each in threading.enumerate() if each.name == name]
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    frame = sys._current_frames()[thread.ident]
    if "waiter" in frame.f_locals:
        # Of a condition or an event, at which others may wait too. It may have ended by itself meanwhile.
        with contextlib.suppress(RuntimeError):
            frame.f_locals["waiter"].release()
