"""The power limit optimizer of Zeus and its selectors, with limits that the node agent holds.

`wattloop.compat.zeus` has these names. A training that does not come from Zeus uses `wattloop.PowerLimitOptimizer`,
which repeats limits until its choice is certain.
"""

from __future__ import annotations

import json
import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from wattloop.errors import InputError, OperationError, UsageError
from wattloop.files.atomic_write import open_atomic
from wattloop.files.reading import parse_json, read_text
from wattloop.gpus.agent import SOCKET_VARIABLE, AgentConnection
from wattloop.power import selectors
from wattloop.power.shared_totals import SharedReading, TotalsExchange
from wattloop.power.windows import Totals
from wattloop.wire.torch_group import LostStoreError, TorchGroup, torch_group

if TYPE_CHECKING:
    from wattloop.compat.zeus_windows import ZeusMonitor

logger = logging.getLogger("wattloop")

WINDOW = "__GlobalPowerLimitOptimizer_{watts}"
EXPECTED = 'a profile of Zeus: {"measurements": [{"power_limit": watts, "energy": joules, "time": seconds}, ...]}'
MAX_FILE_BYTES = 1024 * 1024
MAX_MEMORY_BYTES = 16 * 1024 * 1024


class OptimizerArgumentError(UsageError, ValueError):
    """An argument is invalid. A ``ValueError``, as in Zeus."""


class PowerLimitNotHeldError(OperationError, RuntimeError):
    """Power limits can't be set. A ``RuntimeError``, as in Zeus."""


@dataclass(frozen=True)
class PowerLimitMeasurement:
    """Energy and time of the profiled steps at one power limit.

    Attributes:
        power_limit: Limit of each GPU, in watts.
        energy: Energy of all GPUs of all ranks, in joules.
        time: Time of the slowest rank, in seconds.
    """

    power_limit: int
    energy: float
    time: float


class OptimumSelector(ABC):
    """Selects a power limit from measurements."""

    @abstractmethod
    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        """The power limit to hold, in watts."""


def _selected(selector: selectors.Selector, measurements: Sequence[PowerLimitMeasurement], gpus: int = 1) -> int:
    known = [selectors.MeasuredLimit(each.power_limit, each.energy, each.time, gpus) for each in measurements]
    return int(selector.select(known).power_limit_watts)


class Energy(OptimumSelector):
    """Selects the limit of the lowest energy."""

    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        """See `OptimumSelector`."""
        return _selected(selectors.Energy(), measurements)


class Time(OptimumSelector):
    """Selects the limit of the lowest time."""

    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        """See `OptimumSelector`."""
        return _selected(selectors.Time(), measurements)


class ZeusCost(OptimumSelector):
    """Selects the limit of the lowest cost η·energy + (1−η)·MaxPower·time.

    MaxPower is the highest limit measured times the number of GPUs.

    Args:
        eta_knob: η, from 0 to 1.
        world_size: Number of GPUs of all ranks. The default of `GlobalPowerLimitOptimizer` counts them itself.

    Raises:
        OptimizerArgumentError: An argument is out of range.
    """

    def __init__(self, eta_knob: float, world_size: int = 1) -> None:
        if not 0 <= eta_knob <= 1:
            raise OptimizerArgumentError(f"eta_knob is {eta_knob!r}; it must be from 0 to 1, such as 0.5")
        if world_size < 1:
            raise OptimizerArgumentError(f"world_size is {world_size!r}; it must be at least 1")
        self.eta_knob = eta_knob
        self.world_size = world_size

    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        """See `OptimumSelector`."""
        return _selected(selectors.Cost(self.eta_knob), measurements, self.world_size)


class MaxSlowdownConstraint(OptimumSelector):
    """Selects the lowest limit whose time is at most a factor of that of the highest limit.

    Args:
        factor: At least 1.

    Raises:
        OptimizerArgumentError: The factor is less than 1.
    """

    def __init__(self, factor: float) -> None:
        if not 1 <= factor < math.inf:
            raise OptimizerArgumentError(f"factor is {factor!r}; it must be at least 1, such as 1.1 for 10 % slower")
        self.factor = factor

    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        """See `OptimumSelector`."""
        return _selected(selectors.MaxSlowdown(self.factor), measurements)


class Callback:
    """The calls of a training loop; each does nothing unless a subclass does something."""

    def on_train_begin(self) -> None:
        """A training begins."""

    def on_train_end(self) -> None:
        """A training has ended."""

    def on_epoch_begin(self) -> None:
        """An epoch begins."""

    def on_epoch_end(self) -> None:
        """An epoch has ended."""

    def on_step_begin(self) -> None:
        """A step begins."""

    def on_step_end(self) -> None:
        """A step has ended."""

    def on_evaluate(self, metric: float) -> None:
        """The model was evaluated."""


def zeus_measurements(text: str, source: str) -> list[PowerLimitMeasurement]:
    """The measurements of a profile of Zeus.

    Args:
        text: The content.
        source: Its origin, for errors.

    Raises:
        InputError: It is no such profile.
    """
    content = parse_json(text, source, EXPECTED, MAX_MEMORY_BYTES)
    listed = content.get("measurements") if isinstance(content, Mapping) else None
    if not isinstance(listed, list) or not listed:
        raise InputError(source, "no list of measurements", EXPECTED)
    measurements = []
    for number, each in enumerate(listed):
        fields = each if isinstance(each, Mapping) else {}
        watts, joules, seconds = (_positive(fields.get(name)) for name in ("power_limit", "energy", "time"))
        if watts is None or joules is None or seconds is None:
            raise InputError(source, f"measurement {number} is {each!r:.100}", f"positive numbers: {EXPECTED}")
        measurements.append(PowerLimitMeasurement(int(watts), joules, seconds))
    return measurements


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < math.inf else None


class _Phase(Enum):
    WAIT = auto()
    WARM_UP = auto()
    PROFILE = auto()
    DONE = auto()


class GlobalPowerLimitOptimizer(Callback):
    """Measures power limits in the first steps of a training, then holds the best until the process ends.

    Call `on_step_begin` and `on_epoch_end`. The agent holds the limits, and restores the GPUs when the process ends.
    The ranks of a process group measure together: their energies are added, the time is that of the slowest, and the
    choice of rank 0 counts. An epoch that ends within a limit interrupts its measurement; the next one continues it.

    Args:
        monitor: Measures; its GPUs get the limits. In a process group, the GPU of this rank.
        optimum_selector: Selects the limit; default: `ZeusCost` with η = 0.5 and the GPUs of all ranks.
        wait_steps: Steps before anything is done.
        warmup_steps: Steps at each limit before it is measured.
        profile_steps: Steps that are measured at each limit.
        pl_step: Distance of the limits, in watts, from the highest down.
        profile_path: A file of this class or of Zeus: if it exists, its measurements are used, and nothing is measured;
            otherwise rank 0 writes it.

    Attributes:
        monitor: As given.
        optimum_selector: As given, or the default.
        power_limits: The limits, in watts, in the order in which they are measured.
        measurements: What was measured so far, or read.

    Raises:
        OptimizerArgumentError: An argument is out of range, or the GPUs accept different limits.
        PowerLimitNotHeldError: No agent answers, or it allows no limit on these GPUs.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        optimum_selector: OptimumSelector | None = None,
        wait_steps: int = 1,
        warmup_steps: int = 10,
        profile_steps: int = 40,
        pl_step: int = 25,
        profile_path: str | Path | None = None,
    ) -> None:
        for name, value, least in (
            ("wait_steps", wait_steps, 0),
            ("warmup_steps", warmup_steps, 0),
            ("profile_steps", profile_steps, 1),
            ("pl_step", pl_step, 1),
        ):
            if value < least:
                raise OptimizerArgumentError(f"{name} is {value!r}; it must be a whole number of at least {least}")
        self.monitor = monitor
        self.optimum_selector = optimum_selector or ZeusCost(0.5, max(len(monitor.gpu_indices), 1))
        self.warmup_steps = warmup_steps
        self.profile_steps = profile_steps
        self.profile_path = None if profile_path is None else Path(profile_path)
        self.measurements: list[PowerLimitMeasurement] = []
        self._has_default_selector = optimum_selector is None
        socket = os.environ.get(SOCKET_VARIABLE, "")
        if not socket:
            raise PowerLimitNotHeldError(
                "power limits need the node agent, which sets them as root and restores them: run `wattloop agent "
                f"--socket PATH` and give the training {SOCKET_VARIABLE}=PATH"
            )
        self._agent = AgentConnection(socket)
        lowest, highest = self._allowed_watts()
        self.power_limits = list(range(int(highest), math.ceil(lowest) - 1, -pl_step))
        self._phase, self._left = _Phase.WAIT, wait_steps
        self._has_begun = self._in_step = self._is_open = False
        self._energy_joules = self._time_seconds = 0.0
        self._problem = ""
        self._group: TorchGroup | None = None
        self._name = ""
        self._hold(self.power_limits[0])

    def on_step_begin(self) -> None:
        """A step begins; the step before has ended."""
        self._finish_step()
        if not self._has_begun:
            self._begin()
        while self._phase is not _Phase.DONE and self._left == 0:
            if self._phase is _Phase.WAIT:
                self._hold(self._watts())
                self._phase, self._left = _Phase.WARM_UP, self.warmup_steps
            else:
                self._phase, self._left = _Phase.PROFILE, self.profile_steps
        if self._phase is _Phase.PROFILE and not self._is_open:
            self.monitor.begin_window(WINDOW.format(watts=self._watts()))
            self._is_open = True
        self._in_step = True

    def on_epoch_end(self) -> None:
        """An epoch has ended: what follows, such as an evaluation, is not measured."""
        self._finish_step()
        self._end_window()

    def _finish_step(self) -> None:
        if not self._in_step or self._phase is _Phase.DONE:
            return
        self._in_step = False
        self._left -= 1
        if self._phase is _Phase.PROFILE and self._left == 0:
            self._end_window()
            self._measured()

    def _watts(self) -> int:
        return self.power_limits[len(self.measurements)]

    def _end_window(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        ended = self.monitor.end_window(WINDOW.format(watts=self._watts()))
        own = ended.measurement
        if own is not None and not own.complete:
            self._problem = f"the energy at {self._watts()} W is not known: {own.reason}"
        self._energy_joules += ended.total_energy
        self._time_seconds += ended.time

    def _begin(self) -> None:
        """Meet the other ranks, and use a profile that exists."""
        self._has_begun = True
        self._group = torch_group()
        try:
            number = 0 if self._group is None else self._group.next_number("wattloop/zeus")
        except LostStoreError as error:
            self._give_up(f"the store of the process group is lost: {error}")
            return
        self._name = f"wattloop/zeus/{number}"
        stored = self.profile_path is not None and self.profile_path.exists()
        text = read_text(self.profile_path, MAX_FILE_BYTES, EXPECTED) if self.profile_path and stored else ""
        shared = self._shared("the beginning", text)
        if shared is None:
            return
        if self._has_default_selector:
            # The cost of all ranks' energy needs the power of all ranks' GPUs.
            self.optimum_selector = ZeusCost(0.5, shared.gpus)
        if shared.note:
            self.measurements = zeus_measurements(shared.note, str(self.profile_path))
            self._choose()

    def _shared(self, moment: str, note: str = "") -> SharedReading | None:
        """The sums over all ranks at this place; None if they can't measure together, and then no limit is held."""
        exchange = TotalsExchange(self._group, f"{self._name}/{moment}", Totals(0.0, 0.0))
        shared = exchange.exchange(
            Totals(self._energy_joules, self._time_seconds),
            len(self.monitor.gpu_uuids),
            tuple(float(watts) for watts in self.power_limits),
            interrupted=False,
            moment=moment,
            uuids=self.monitor.gpu_uuids,
            problem=self._problem,
            note=note,
        )
        if shared is None:
            self._give_up(self._problem or "the ranks do not measure together")
        return shared

    def _measured(self) -> None:
        watts = self._watts()
        shared = self._shared(f"{watts} W")
        self._energy_joules = self._time_seconds = 0.0
        if shared is None:
            return
        self.measurements.append(PowerLimitMeasurement(watts, shared.energy_joules, shared.time_seconds))
        if len(self.measurements) < len(self.power_limits):
            self._hold(self._watts())
            self._phase, self._left = _Phase.WARM_UP, self.warmup_steps
            return
        self._choose()
        if self.profile_path is not None and (self._group is None or self._group.rank == 0):
            with open_atomic(self.profile_path) as stream:
                json.dump({"measurements": [asdict(each) for each in self.measurements]}, stream, indent=4)

    def _choose(self) -> None:
        chosen = self.optimum_selector.select(self.measurements)
        # Selectors of the ranks may differ: the choice of rank 0 counts.
        shared = self._shared("the choice", str(int(chosen)))
        if shared is None:
            return
        self._phase = _Phase.DONE
        watts = int(shared.note)
        logger.info("optimal power limit %d W", watts)
        self._hold(watts)

    def _give_up(self, reason: str) -> None:
        logger.warning("power limits are no longer measured, and none is held: %s", reason)
        self._phase = _Phase.DONE
        try:
            self._agent.release(self.monitor.gpu_uuids, "power_limit")
        except OperationError as error:
            logger.warning("the power limit was not released: %s; the agent restores it when this process ends", error)

    def _hold(self, watts: int) -> None:
        try:
            self._agent.hold_limit(self.monitor.gpu_uuids, float(watts))
        except OperationError as error:
            raise PowerLimitNotHeldError(f"the power limit of {watts} W is not held: {error}") from error

    def _allowed_watts(self) -> tuple[float, float]:
        """The range of limits that may be held on every GPU of the monitor."""
        try:
            described = [gpu for gpu in self._agent.gpus() if gpu.uuid in self.monitor.gpu_uuids]
        except OperationError as error:
            raise PowerLimitNotHeldError(f"power limits can't be held: {error}") from error
        ranges = {gpu.power_limits.allowed_watts for gpu in described if gpu.power_limits is not None}
        if len(ranges) > 1:
            raise OptimizerArgumentError(f"the GPUs accept different power limits: {ranges}; give each its own monitor")
        allowed = next(iter(ranges), None)
        if allowed is None:
            raise PowerLimitNotHeldError(
                "the agent allows this process no power limit on the monitor's GPUs; `wattloop monitor` shows the GPUs"
            )
        return allowed
