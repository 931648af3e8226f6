"""How the advice of mode Advise came true: what was expected when the mode ended, and what was measured since."""

from __future__ import annotations

from datetime import datetime

from wattloop_operator.api.batch_size_policy import DecisionKind
from wattloop_operator.api.meta import Condition
from wattloop_operator.api.recurring_training_job import Mode
from wattloop_operator.domain.quantities import NOT_KNOWN_YET, saving_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.conditions import condition
from wattloop_operator.reconcile.learning.advice import next_configuration, next_saving
from wattloop_operator.reconcile.learning.job_observations import known_records
from wattloop_operator.reconcile.learning.job_savings import JobSavings, Purpose
from wattloop_planner.bandit.configuration import Configuration

ADVICE_CHECKED = "AdviceChecked"
MEASURED = "; measured: "


def advice_checked(snapshot: Snapshot, savings: JobSavings, now: datetime) -> tuple[Condition, ...]:
    """The condition with the expected and the measured saving of the advised configuration.

    Its message keeps what was expected. A job that was never in mode Advise, or is, has none.

    Args:
        snapshot: The state of the job.
        savings: Its recurrences, compared with the default configuration by cost.
        now: The time.
    """
    expected = _expected(snapshot)
    if not expected:
        return ()
    indices = _indices(snapshot, savings, expected)
    measured = savings.of_all(indices)
    text = NOT_KNOWN_YET if measured is None else f"{saving_text(measured)} over {len(indices)} recurrence(s)"
    holds, reason = (None, "NotMeasured") if measured is None else (True, "Measured")
    message, before = f"{expected}{MEASURED}{text}.", snapshot.job.status.conditions
    return (condition(before, ADVICE_CHECKED, holds=holds, reason=reason, message=message, now=now),)


def _expected(snapshot: Snapshot) -> str:
    """What the last advice expected, as the begin of a sentence; empty if there was none."""
    status = snapshot.job.status
    if snapshot.job.spec.mode is Mode.ADVISE:
        return ""
    if status.next is not None and status.next.kind is DecisionKind.ADVISE:
        saving = next_saving(status.next)
        return "" if saving is None else f"{_subject(next_configuration(status.next))}{saving_text(saving)}"
    messages = (each.message for each in status.conditions if each.type == ADVICE_CHECKED)
    return next(messages, "").partition(MEASURED)[0]


def _subject(configuration: Configuration) -> str:
    ordered = Configuration(configuration.batch_size, tuple(sorted(configuration.parameters)))
    return f"Mode Advise expected batch size {ordered} to cost "


def _indices(snapshot: Snapshot, savings: JobSavings, expected: str) -> tuple[int, ...]:
    """The recurrences since with the advised configuration: those that held it, or else the trial of it."""
    records = known_records(snapshot)
    last = max((each.recurrence for each in records if each.decision_kind == DecisionKind.ADVISE.value), default=-1)
    ran = {
        each.recurrence
        for each in records
        if each.recurrence > last and expected.startswith(_subject(Configuration(each.batch_size, each.parameters)))
    }
    found = [each for each in savings.recurrences if each.has_saving and each.index in ran]
    held = [each.index for each in found if each.purpose is Purpose.CHOSEN]
    return tuple(held or [each.index for each in found])
