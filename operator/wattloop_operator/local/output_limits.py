"""Measures power limits in a local training that does not use the client, at the ends of its epochs."""

from __future__ import annotations

import math

from wattloop.power.windows import Totals
from wattloop.run.held_gpus import ProcessGpus
from wattloop.wire.training_messages import LimitMeasurement
from wattloop_operator.api.power_fields import PowerLimit
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reconcile.attempt.limits_by_epoch import EpochEnd, LimitsByEpoch
from wattloop_operator.reconcile.attempt.ordered_limit import limits_to_order
from wattloop_operator.reconcile.learning.power_profiles import best_limit


class OutputLimits:
    """Holds and measures the limits of one attempt. Call `polling` before its output is read, each time.

    Args:
        recurrence: The attempt.
        gpus: Its GPUs.
        power: How the job chooses its limit.
    """

    def __init__(self, recurrence: TrainingRecurrence, gpus: ProcessGpus, power: PowerLimit) -> None:
        self._spec = recurrence.spec
        self._gpus = gpus
        self._power = power
        self._limits: LimitsByEpoch | None = None
        # When the output was read last, and when it is read now, by the clock of the GPUs.
        self._last_seconds: float | None = None
        self._now_seconds: float | None = None

    @property
    def measurements(self) -> tuple[LimitMeasurement, ...]:
        """The limits measured so far."""
        return () if self._limits is None else self._limits.measurements

    def begin(self) -> None:
        """Hold the first limit, before the training starts."""
        allowed = self._gpus.allowed_watts
        if allowed is None:
            # No limit is allowed. The request fails, and the agent's error gives the reason.
            if self._gpus.count:
                self._gpus.hold(self._gpus.max_power_limit_watts / self._gpus.count)
            return
        self._limits = LimitsByEpoch(limits_to_order(math.ceil(allowed[0]), math.floor(allowed[1])))
        self._gpus.hold(float(self._limits.limit_watts))
        self.polling()

    def polling(self) -> None:
        """The output is read next."""
        if self._is_measuring:
            totals = self._gpus.totals()
            self._last_seconds = self._now_seconds
            self._now_seconds = None if totals is None else totals.time_seconds

    def epoch_ended(self, epoch: float) -> None:
        """The output that was just read shows that this number of epochs has been run."""
        limits, totals = self._limits, self._gpus.totals() if self._is_measuring else None
        if limits is None or totals is None:
            return
        if self._gpus.was_interrupted():
            limits.restart_window()
        if self._last_seconds is None:
            return
        before = limits.limit_watts
        limits.add(EpochEnd(epoch, totals, totals.time_seconds - self._last_seconds))
        if limits.finished:
            best = best_limit(self._power, self._spec.energy_weight_percent, limits.measurements, self._gpus.count)
            self._gpus.hold(best.power_limit_watts)
        elif limits.limit_watts != before:
            self._gpus.hold(float(limits.limit_watts))
            limits.limit_set(_seconds_between(totals, self._gpus.totals()))

    @property
    def _is_measuring(self) -> bool:
        # `hold` has logged why a limit is refused.
        return self._limits is not None and not self._limits.finished and not self._gpus.refusal


def _seconds_between(one: Totals, other: Totals | None) -> float:
    # Without a reading, any time may have passed.
    return math.inf if other is None else other.time_seconds - one.time_seconds
