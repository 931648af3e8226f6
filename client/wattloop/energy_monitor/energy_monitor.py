"""Measures the energy of parts of a program, by name."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from wattloop.energy_monitor.measurement import Measurement, RecordedWindow
from wattloop.energy_monitor.process_sampler import Moment, ProcessSampler, process_sampler
from wattloop.energy_monitor.sources import FirstAvailable
from wattloop.errors import UsageError
from wattloop.printable import short_repr

logger = logging.getLogger("wattloop")

Function = TypeVar("Function", bound=Callable[..., Any])

# Names of ended windows that are kept to explain a second end.
MAX_ENDED = 64
_SHOWN_NAMES = 8


class EnergyMonitor:
    """Measures windows: parts of a program between two moments, on the GPUs that the program uses.

    Windows may be nested and may overlap. The begin and the end of a window read the clock, and nothing
    else: one thread of the process reads the GPUs for all monitors, from the node's agent if
    ``WATTLOOP_AGENT_SOCKET`` names its socket, else with NVML (the extra ``nvml``). Without
    either, one warning is logged, and windows measure time alone.

    The windows of `begin_window` belong to the monitor: any thread or asyncio task may end one that another
    began, and a name can be open once. The windows of `window` have no such restriction; use them where
    threads or tasks run the same code. A child process made by ``fork`` has no open windows.

    Args:
        gpus: Indices as CUDA counts them (after ``CUDA_VISIBLE_DEVICES``), or UUIDs; default: all GPUs that
            CUDA shows to this process.
        sync: ``"torch"``, ``"jax"`` or ``"cupy"`` to wait for the framework's queued work at the begin and
            the end of each window; default: do not wait.

    Raises:
        UsageError: A GPU does not exist or is named twice, or `sync` is another value.

    Example:
        ``monitor = EnergyMonitor()``, then ``with monitor.window("epoch") as window: train()``, then
        ``window.measurement.total_energy_joules``.
    """

    def __init__(self, gpus: Sequence[int | str] | None = None, sync: str | None = None) -> None:
        self._sync = synchronization(sync)
        sampler = process_sampler.get(FirstAvailable, self)
        sampler.wait_until_open()
        self._attach(sampler, gpus)
        if sampler.problem:
            _warn_once(sampler.problem)
        elif not sampler.uuids:
            _warn_once("CUDA or the agent shows no GPU to this process")

    @classmethod
    def _with_sampler(cls, sampler: ProcessSampler, gpus: Sequence[int | str] | None = None) -> Self:
        """A monitor with a sampler of its own, which the caller drives."""
        monitor = cls.__new__(cls)
        monitor._sync = None
        monitor._attach(sampler, gpus)
        return monitor

    def _attach(self, sampler: ProcessSampler, gpus: Sequence[int | str] | None) -> None:
        self._sampler = sampler
        self._windows: dict[str, Moment] = {}
        self._ended: deque[str] = deque(maxlen=MAX_ENDED)
        self._process = os.getpid()
        indices = _indices(gpus, sampler)
        self.gpu_indices: tuple[int, ...] = indices
        """The GPUs of this monitor, by CUDA's index."""
        self._uuids = {index: sampler.uuids[index] for index in indices}
        sampler.select(list(self._uuids.values()))
        _monitors.add(self)

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """UUIDs of the GPUs of this monitor, in the order of `gpu_indices`."""
        return tuple(self._uuids.values())

    def begin_window(self, name: str, *, restart: bool = False) -> None:
        """Begin a window.

        Args:
            name: Its name.
            restart: Whether to discard an open window of this name, as after an exception in a notebook.

        Raises:
            UsageError: A window of this name is open already.
        """
        self._synchronize()
        moment = self._sampler.moment()
        if restart:
            self._windows[_checked(name)] = moment
        elif self._windows.setdefault(_checked(name), moment) is not moment:
            raise UsageError(
                f"the window {short_repr(name)} is open already; end it first, begin it again with restart=True, or "
                "use window(), whose windows may have the same name"
            )

    def end_window(self, name: str) -> Measurement:
        """End a window.

        Raises:
            UsageError: No window of this name is open.
        """
        self._synchronize()
        end = self._sampler.moment()
        return self._measurement(name, self._removed(name), end)

    def cancel_window(self, name: str) -> None:
        """End a window without a measurement.

        Raises:
            UsageError: No window of this name is open.
        """
        self._removed(name)

    def running(self, name: str) -> Measurement:
        """An estimate of an open window so far, from the readings that exist now. The window goes on.

        Raises:
            UsageError: No window of this name is open.
        """
        begin = self._windows.get(_checked(name))
        if begin is None:
            raise self._not_open(name)
        return self._measurement(name, begin, self._sampler.moment(), waits=False)

    def window(self, name: str) -> Window:
        """A window as a context manager or a decorator.

        Each use is a window of its own, also if others of this name are open.
        """
        return Window(self, _checked(name))

    def open_windows(self) -> tuple[str, ...]:
        """Names of the open windows, in the order of their begin."""
        return tuple(self._windows)

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError("an EnergyMonitor belongs to its process and can't be copied; make one in each process")

    def _synchronize(self) -> None:
        if self._sync is not None:
            self._sync(self.gpu_indices)

    def _measurement(self, name: str, begin: Moment, end: Moment, *, waits: bool = True) -> Measurement:
        return Measurement(name, RecordedWindow(self._sampler, self._uuids, begin, end, waits, self))

    def _removed(self, name: str) -> Moment:
        begin = self._windows.pop(_checked(name), None)
        if begin is None:
            raise self._not_open(name)
        self._ended.append(name)
        return begin

    def _not_open(self, name: str) -> UsageError:
        names = ", ".join(map(short_repr, list(self._windows)[:_SHOWN_NAMES]))
        others = f"open are {names}" if names else "no window is open"
        if name in self._ended:
            return UsageError(f"the window {short_repr(name)} has been ended already; begin it again first ({others})")
        forked = self._process != os.getpid()
        hint = "; windows that were open before a fork belong to the parent process" if forked else ""
        return UsageError(f"no window {short_repr(name)} is open; {others}{hint}")

    def _continue_in_child(self, sampler: ProcessSampler) -> None:
        self._windows = {}
        self._sampler = sampler
        sampler.add_user(self)
        sampler.select(list(self._uuids.values()))


class Window:
    """One window of a monitor: a context manager, or a decorator of a function that measures each call.

    Attributes:
        name: Its name.
    """

    def __init__(self, monitor: EnergyMonitor, name: str) -> None:
        self.name = name
        self._monitor = monitor
        self._begin: Moment | None = None
        self._measurement: Measurement | None = None

    @property
    def measurement(self) -> Measurement:
        """The measurement of the last block or call that has ended.

        Raises:
            UsageError: None has ended yet.
        """
        if self._measurement is None:
            hint = "it is open; running() gives an estimate" if self._begin is not None else "it has not begun"
            raise UsageError(f"the window {self.name!r} has no measurement yet: {hint}")
        return self._measurement

    def running(self) -> Measurement:
        """An estimate so far. The window goes on.

        Raises:
            UsageError: It is not open.
        """
        if self._begin is None:
            raise UsageError(f"the window {self.name!r} is not open, so there is no estimate of it")
        return self._monitor._measurement(self.name, self._begin, self._monitor._sampler.moment(), waits=False)

    def __enter__(self) -> Self:
        if self._begin is not None:
            raise UsageError(
                f"this object of the window {self.name!r} is open already; "
                f"call monitor.window({self.name!r}) for each use"
            )
        self._monitor._synchronize()
        self._begin = self._monitor._sampler.moment()
        return self

    def __exit__(self, *_: object) -> None:
        begin, self._begin = self._begin, None
        if begin is not None:
            self._monitor._synchronize()
            self._measurement = self._monitor._measurement(self.name, begin, self._monitor._sampler.moment())

    def __call__(self, function: Function) -> Function:
        """Measure each call of a function; the last measurement is the function's attribute `measurement`.

        Raises:
            UsageError: It is a generator function, whose calls do not run it.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(
                f"{function.__qualname__} is a generator function; measure its loop with a with statement instead"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def measured(*arguments: Any, **named: Any) -> Any:
                with Window(self._monitor, self.name) as window:
                    result = await function(*arguments, **named)
                self._measurement = measured.measurement = window.measurement  # type: ignore[attr-defined]
                return result
        else:

            @functools.wraps(function)
            def measured(*arguments: Any, **named: Any) -> Any:
                with Window(self._monitor, self.name) as window:
                    result = function(*arguments, **named)
                self._measurement = measured.measurement = window.measurement  # type: ignore[attr-defined]
                return result

        return measured  # type: ignore[return-value]


def _indices(gpus: Sequence[int | str] | None, sampler: ProcessSampler) -> tuple[int, ...]:
    count = len(sampler.uuids)
    if gpus is None:
        return tuple(range(count))
    if isinstance(gpus, str) or not isinstance(gpus, Sequence):
        raise UsageError(f"gpus: found {gpus!r}, expected a list of indices or UUIDs")
    if sampler.problem:
        return ()
    found = []
    for gpu in gpus:
        index = sampler.uuids.index(gpu) if isinstance(gpu, str) and gpu in sampler.uuids else gpu
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
            known = ", ".join(f"{number} ({uuid})" for number, uuid in enumerate(sampler.uuids))
            raise UsageError(
                f"gpus: found {gpu!r}, expected indices or UUIDs of this process's GPUs: {known or 'none'}"
            )
        found.append(index)
    if len(set(found)) < len(found):
        raise UsageError(f"gpus: found {list(gpus)!r}, expected each GPU once")
    return tuple(found)


def _checked(name: str) -> str:
    if not isinstance(name, str):
        raise UsageError(f"found the name {short_repr(name)} of a window, expected a string")
    return name


Synchronize = Callable[[Sequence[int]], None]


def synchronization(framework: str | None) -> Synchronize | None:
    """The function that waits for a framework's work on GPUs, by CUDA's index; None for no framework.

    A framework that the process has not imported, or that has not used a GPU, has no work. Its module
    is never imported here.

    Raises:
        UsageError: The name is not one of ``torch``, ``jax``, ``cupy``.
    """
    if framework is None:
        return None
    if framework not in _FRAMEWORKS:
        raise UsageError(f"sync: found {framework!r}, expected None or one of {', '.join(map(repr, _FRAMEWORKS))}")
    function = _FRAMEWORKS[framework]

    def synchronize(gpus: Sequence[int]) -> None:
        module = sys.modules.get(framework)
        if module is not None:
            function(module, gpus)

    return synchronize


def _torch(torch: Any, gpus: Sequence[int]) -> None:
    # Without CUDA, or before its first use, synchronize would raise an error or create a context.
    if torch.cuda.is_initialized():
        for gpu in gpus:
            torch.cuda.synchronize(gpu)


def _jax(jax: Any, gpus: Sequence[int]) -> None:
    # JAX has no call that waits for a device. Work on one device is done in order, so new work is done last.
    devices = jax.local_devices()
    on_gpus = [device for device in devices if device.platform == "gpu"]
    chosen = [on_gpus[gpu] for gpu in gpus if gpu < len(on_gpus)] if on_gpus else devices
    jax.block_until_ready([jax.device_put(0.0, device) + 0 for device in chosen])


def _cupy(cupy: Any, gpus: Sequence[int]) -> None:
    if cupy.is_available():
        for gpu in gpus:
            cupy.cuda.Device(gpu).synchronize()


_FRAMEWORKS: dict[str, Callable[[Any, Sequence[int]], None]] = {"torch": _torch, "jax": _jax, "cupy": _cupy}


_monitors: weakref.WeakSet[EnergyMonitor] = weakref.WeakSet()
_warned: set[str] = set()


def _warn_once(problem: str) -> None:
    if not _warned:
        logger.warning("energy is not measured, windows measure time alone: %s", problem)
    _warned.add(problem)


def _continue_in_child() -> None:
    sampler = process_sampler.replace_in_child(FirstAvailable)
    if sampler is not None:
        for monitor in list(_monitors):
            monitor._continue_in_child(sampler)


os.register_at_fork(
    before=process_sampler.before_fork, after_in_parent=process_sampler.after_fork, after_in_child=_continue_in_child
)
