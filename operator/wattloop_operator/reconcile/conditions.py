"""Conditions that keep the time of their last change: writing the same truth again changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from wattloop_operator.api.meta import Condition, ConditionStatus

MAX_MESSAGE_CHARACTERS = 4096


def condition(
    before: Iterable[Condition], kind: str, *, holds: bool, reason: str, message: str, now: datetime
) -> Condition:
    """The condition of this type, with the time of its last change taken from the ones before."""
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    since = next((each.last_transition_time for each in before if each.type == kind and each.status is status), now)
    return Condition(
        type=kind, status=status, reason=reason, message=message[:MAX_MESSAGE_CHARACTERS], last_transition_time=since
    )


def none_ahead(conditions: Iterable[Condition], now: datetime) -> tuple[Condition, ...]:
    """The conditions with no change later than now: what a clock says after it was set back.

    What waits for a while from such a change on would wait for as long as the clock was set back, too.
    """
    return tuple(
        each if each.last_transition_time <= now else each.model_copy(update={"last_transition_time": now})
        for each in conditions
    )


def changed_at(conditions: Iterable[Condition], kind: str) -> datetime | None:
    """Since when the condition of this type holds; None where it does not."""
    return next(
        (each.last_transition_time for each in conditions if each.type == kind and each.status is ConditionStatus.TRUE),
        None,
    )
