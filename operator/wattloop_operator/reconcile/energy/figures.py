"""The figures of an attempt as a person reads them."""

from __future__ import annotations

from wattloop_operator.api.attempt_state import Progress
from wattloop_operator.api.training_recurrence import AttemptCost, Figures, Usage
from wattloop_operator.domain.quantities import energy_text, metric_text, time_text


def attempt_figures(usage: Usage | None, cost: AttemptCost | None, progress: Progress) -> Figures:
    """Energy, time, cost and metric of an attempt that has ended, with units."""
    energy = None if usage is None else float(usage.gpu_energy_joules) or None
    time = None if usage is None else float(usage.duration_seconds) or None
    return Figures(
        energy=energy_text(energy),
        time=time_text(time),
        cost=energy_text(None if cost is None else float(cost.joules)),
        metric=metric_text(None if progress.metric is None else float(progress.metric)),
    )
