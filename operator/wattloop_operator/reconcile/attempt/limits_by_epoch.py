"""The measurement of power limits over whole epochs of a training that reports no steps.

Only the ends of epochs are seen of such a training, and a little late. A window counts once the time by which its ends
may have been seen late is a small part of it; until then it goes on to the end of a further epoch.
"""

from dataclasses import dataclass, replace

from wattloop.power.windows import MIN_WINDOW_SECONDS, Totals
from wattloop.wire.training_messages import MIN_MEASURED, LimitMeasurement
from wattloop_operator.reconcile.attempt.ordered_limit import MAX_CHANGE_PART


@dataclass(frozen=True)
class EpochEnd:
    """The end of an epoch, as it was seen.

    Attributes:
        totals: Energy and time of the GPUs when it was seen.
        late_seconds: Upper bound of the time since it happened.
    """

    epoch: float
    totals: Totals
    late_seconds: float


class LimitsByEpoch:
    """The state of one measurement of all limits.

    To use it, hold `limit_watts`, and pass the end of each epoch to `add`; if `limit_watts` has changed,
    hold it and call `limit_set`. Repeat until `finished`.

    The first epoch counts for no limit, because the start of the training falls into it.
    """

    def __init__(self, limits_watts: tuple[int, ...]) -> None:
        self._limits = limits_watts
        self._start: EpochEnd | None = None
        self.measurements: tuple[LimitMeasurement, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether every limit has been measured."""
        return len(self.measurements) == len(self._limits)

    @property
    def limit_watts(self) -> int:
        """The limit to hold now."""
        return self._limits[min(len(self.measurements), len(self._limits) - 1)]

    def add(self, end: EpochEnd) -> None:
        """An epoch has ended under the limit."""
        start = self._start
        if start is None or end.epoch <= start.epoch:
            # A lower epoch: the training has begun again.
            self._start = end
            return
        seconds = end.totals.time_seconds - start.totals.time_seconds
        joules = end.totals.energy_joules - start.totals.energy_joules
        is_sharp = start.late_seconds + end.late_seconds <= MAX_CHANGE_PART * seconds
        if is_sharp and seconds >= MIN_WINDOW_SECONDS and joules >= MIN_MEASURED:
            if not self.finished:
                point = LimitMeasurement(float(self.limit_watts), joules, seconds, end.epoch - start.epoch)
                self.measurements += (point,)
            self._start = end
        elif end.late_seconds < start.late_seconds / 2:
            # A window from here is sharp sooner.
            self._start = end

    def limit_set(self, seconds: float) -> None:
        """The limit is held, this time after the end of the epoch was seen."""
        if self._start is not None:
            self._start = replace(self._start, late_seconds=self._start.late_seconds + seconds)

    def restart_window(self) -> None:
        """Begin the window again at the end of the next epoch: the limit was not held for a moment."""
        self._start = None
