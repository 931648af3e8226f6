"""When an attempt whose training does not learn to stop is ended from outside."""

from __future__ import annotations

from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence


def must_end(recurrence: TrainingRecurrence) -> bool:
    """Whether the attempt has nothing more to do, and its script does not know.

    It has reached the target, was asked to stop, or has passed its last epoch. An attempt that is
    just at its last epoch ends by itself.
    """
    progress = recurrence.status.progress or Progress()
    if recurrence.spec.reporting.uses_client:
        return False
    return progress.reached or progress.stop_requested or has_passed_max_epochs(recurrence)


def has_passed_max_epochs(recurrence: TrainingRecurrence) -> bool:
    """Whether a training that does not use the client goes on after its last epoch."""
    progress = recurrence.status.progress or Progress()
    return not recurrence.spec.reporting.uses_client and (progress.epoch or 0) > recurrence.spec.max_epochs
