"""Whether an attempt's devices are healthy: remembered, since a pod that has ended tells the kubelet's word no more."""

from __future__ import annotations

from datetime import datetime

from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import WorkloadState
from wattloop_operator.reconcile.conditions import condition

DEVICES_HEALTHY = "DevicesHealthy"


def known_unhealthy(recurrence: TrainingRecurrence) -> str:
    """Which devices of the attempt were seen to be unhealthy; empty for none."""
    return next(
        (
            each.message
            for each in recurrence.status.conditions
            if each.type == DEVICES_HEALTHY and each.status is ConditionStatus.FALSE
        ),
        "",
    )


def device_conditions(
    recurrence: TrainingRecurrence, workload: WorkloadState | None, now: datetime
) -> tuple[Condition, ...]:
    """The condition of an attempt of which a device is, or was, unhealthy; none where nothing was heard of."""
    unhealthy = "" if workload is None or not workload.owned else workload.unhealthy
    text = unhealthy or known_unhealthy(recurrence)
    if not text:
        return ()
    before = recurrence.status.conditions
    return (condition(before, DEVICES_HEALTHY, holds=False, reason="Unhealthy", message=text[:4096], now=now),)
