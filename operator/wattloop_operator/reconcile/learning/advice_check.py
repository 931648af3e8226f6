"""How the advice of mode Advise was checked: what was expected, and what was measured in mode Optimize since."""

from __future__ import annotations

from collections.abc import Sequence

from wattloop_operator.api.recurring_training_job import Mode, RecurringTrainingJob
from wattloop_operator.api.recurring_training_job_status import AdviceCheck
from wattloop_operator.domain.quantities import NOT_KNOWN_YET, saving_text
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.learning.advice import advised_saving
from wattloop_operator.reconcile.learning.job_savings import JobSavings, Purpose
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.estimate import Estimate


def advice_check(
    job: RecurringTrainingJob, records: Sequence[ObservationRecord], savings: JobSavings, next_index: int
) -> AdviceCheck | None:
    """The advice at the end of mode Advise, with the saving that its configuration had since; None without one.

    Args:
        job: The job, with the status before.
        records: Its records.
        savings: Its recurrences, compared with the default configuration.
        next_index: Index of its next recurrence.
    """
    check = job.status.advice_check
    if job.spec.mode is not Mode.ADVISE and job.status.advice is not None:
        advice, expected = job.status.advice, advised_saving(job.status.advice)
        check = (
            None
            if expected is None
            else AdviceCheck(
                batch_size=advice.batch_size,
                parameters=advice.parameters,
                since_recurrence=next_index,
                expected_saving_percent=advice.saving_percent,
                low_expected_saving_percent=advice.low_saving_percent,
                high_expected_saving_percent=advice.high_saving_percent,
            )
        )
    if check is None:
        return None
    indices = _indices(records, savings, check)
    measured = savings.of_all(indices)
    fields = ("low_measured_saving_percent", "measured_saving_percent", "high_measured_saving_percent")
    values = (None,) * 3 if measured is None else tuple(round(each, 2) for each in _ends(measured))
    return AdviceCheck.model_validate(
        check.model_dump() | dict(zip(fields, values, strict=True)) | {"recurrences": len(indices)}
    )


def advice_check_text(check: AdviceCheck) -> str:
    """What was expected, and what was measured, as a sentence for users."""
    ends = (check.expected_saving_percent, check.low_expected_saving_percent, check.high_expected_saving_percent)
    expected = Estimate(*(float(each or 0) for each in ends))
    chosen = Configuration(check.batch_size, tuple(check.parameters.items()))
    ends = (check.measured_saving_percent, check.low_measured_saving_percent, check.high_measured_saving_percent)
    known = [float(each) for each in ends if each is not None]
    measured = NOT_KNOWN_YET
    if len(known) == len(ends):
        measured = f"{saving_text(Estimate(*known))} over {check.recurrences} recurrence(s)"
    return f"Mode Advise expected batch size {chosen} to cost {saving_text(expected)}; measured: {measured}."


def _indices(records: Sequence[ObservationRecord], savings: JobSavings, check: AdviceCheck) -> tuple[int, ...]:
    """The recurrences with the advised configuration: those that held it, or else the trial of it."""
    configuration = check.batch_size, tuple(sorted(check.parameters.items()))
    ran = {each.recurrence for each in records if (each.batch_size, each.parameters) == configuration}
    found = [
        each
        for each in savings.recurrences
        if each.has_saving and each.index >= check.since_recurrence and each.index in ran
    ]
    chosen = [each.index for each in found if each.purpose is Purpose.CHOSEN]
    return tuple(chosen or [each.index for each in found])


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.low, estimate.value, estimate.high
