"""Kubernetes conditions that keep the time of their last transition when they are written again."""

from collections.abc import Iterable
from datetime import datetime

from wattloop_operator.api.meta import Condition, ConditionStatus

MAX_MESSAGE_CHARACTERS = 4096


def condition(
    before: Iterable[Condition], kind: str, *, holds: bool | None, reason: str, message: str, now: datetime
) -> Condition:
    """A condition of this type.

    If `before` has it with the same status, its transition time is kept. `holds` is None if it is not known.
    """
    status = ConditionStatus.UNKNOWN if holds is None else ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    since = next((each.last_transition_time for each in before if each.type == kind and each.status is status), now)
    return Condition(
        type=kind, status=status, reason=reason, message=message[:MAX_MESSAGE_CHARACTERS], last_transition_time=since
    )


def not_in_future(conditions: Iterable[Condition], now: datetime) -> tuple[Condition, ...]:
    """The conditions with every transition time limited to now.

    After the clock was set back, a transition time may lie in the future. A wait that is measured
    from it would take that much longer.
    """
    return tuple(
        each if each.last_transition_time <= now else each.model_copy(update={"last_transition_time": now})
        for each in conditions
    )


def true_since(conditions: Iterable[Condition], kind: str) -> datetime | None:
    """Since when the condition of this type is True; None if it is not."""
    return next(
        (each.last_transition_time for each in conditions if each.type == kind and each.status is ConditionStatus.TRUE),
        None,
    )
