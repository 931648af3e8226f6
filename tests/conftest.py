"""What holds for all tests."""

import gc
import signal
from collections.abc import Callable, Generator
from types import FrameType

import pytest

pytest_plugins = ["support.test_sets.plugin"]

# In the background of a shell, or under nohup, these are ignored, and with us by all that tests start and signal.
_AS_IN_A_TERMINAL: dict[signal.Signals, Callable[[int, FrameType | None], None] | signal.Handlers] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
for _number, _handler in _AS_IN_A_TERMINAL.items():
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let Python's garbage collector pass over the modules and tests collected: they stay until the process ends."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: at the end of a part, one of them would leave a processor idle."""
    long = {item.path for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: item.path not in long)
