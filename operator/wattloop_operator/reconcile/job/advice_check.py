"""How the advice of mode Advise came true: what was expected at its end, and what was measured since."""

from __future__ import annotations

from datetime import datetime

from wattloop_operator.api.batch_size_policy import DecisionKind
from wattloop_operator.api.meta import Condition
from wattloop_operator.api.recurring_training_job import Mode
from wattloop_operator.api.recurring_training_job_status import RecentRecurrence
from wattloop_operator.domain.quantities import NOT_KNOWN_YET, saving_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.conditions import condition
from wattloop_operator.reconcile.job.policy_status import decision_now, is_current
from wattloop_operator.reconcile.job.savings_status import savings_of
from wattloop_operator.reconcile.learning.advice import next_configuration, next_saving
from wattloop_operator.reconcile.learning.decision import next_recurrence
from wattloop_operator.reconcile.learning.job_observations import known_profiles, known_records
from wattloop_operator.reconcile.learning.job_savings import JobSavings, Purpose
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import Decision, DecisionContext, NoFeasibleArmError

ADVICE_CHECKED = "AdviceChecked"


def advice_checked(
    snapshot: Snapshot, recent: tuple[RecentRecurrence, ...], savings: JobSavings, now: datetime
) -> tuple[Condition, ...]:
    """The condition with the expected and the measured saving of the advised configuration.

    It is computed again only if an input has changed. A job that was never in mode Advise, or is, has none.

    Args:
        snapshot: The state of the job.
        recent: The latest recurrences, as in the new status.
        savings: Its recurrences, compared with the default configuration by cost.
        now: The time.
    """
    before = snapshot.job.status.conditions
    if snapshot.job.spec.mode is Mode.ADVISE:
        return ()
    if is_current(snapshot, recent):
        return tuple(each for each in before if each.type == ADVICE_CHECKED)
    ended = [each for each in known_records(snapshot) if each.decision_kind == DecisionKind.ADVISE.value]
    try:
        found = next_recurrence(*_at_end_of_advice(snapshot, ended[-1].recurrence)) if ended else None
    except NoFeasibleArmError:
        found = None
    expected = None if found is None else next_saving(found)
    if found is None or expected is None:
        return ()
    chosen = next_configuration(found)
    indices = _indices(snapshot, savings, chosen, ended[-1].recurrence)
    measured = savings.of_all(indices)
    text = NOT_KNOWN_YET if measured is None else f"{saving_text(measured)} over {len(indices)} recurrence(s)"
    message = f"Mode Advise expected batch size {chosen} to cost {saving_text(expected)}; measured: {text}."
    holds, reason = (None, "NotMeasured") if measured is None else (True, "Measured")
    return (condition(before, ADVICE_CHECKED, holds=holds, reason=reason, message=message, now=now),)


def _at_end_of_advice(snapshot: Snapshot, last: int) -> tuple[Snapshot, DecisionContext, Decision]:
    """The state of the job when its last recurrence in mode Advise had ended, and the decision that was advised then.

    The objective, the candidates and the template are the present ones, as those of the measured savings are.

    Args:
        snapshot: The present state.
        last: Index of that recurrence.
    """
    records = tuple(each for each in known_records(snapshot) if each.recurrence <= last)
    measured = {each.batch_size for each in records if each.measures_power_limits}
    spec = snapshot.job.spec.model_copy(update={"mode": Mode.ADVISE})
    then = Snapshot(
        job=snapshot.job.model_copy(update={"spec": spec}),
        records=records,
        profiles=tuple(each for each in known_profiles(snapshot) if each.key.batch_size in measured),
        source_records=snapshot.source_records,
        source_job=snapshot.source_job,
        devices=snapshot.devices,
        runtime_digest=snapshot.runtime_digest,
    )
    return then, *decision_now(then, last + 1, savings_of(then).default)


def _indices(snapshot: Snapshot, savings: JobSavings, chosen: Configuration, last: int) -> tuple[int, ...]:
    """The recurrences since with the advised configuration: those that held it, or else the trial of it."""
    parameters = tuple(sorted(chosen.parameters))
    ran = {
        each.recurrence
        for each in known_records(snapshot)
        if (each.batch_size, each.parameters) == (chosen.batch_size, parameters)
    }
    found = [each for each in savings.recurrences if each.has_saving and each.index > last and each.index in ran]
    held = [each.index for each in found if each.purpose is Purpose.CHOSEN]
    return tuple(held or [each.index for each in found])
