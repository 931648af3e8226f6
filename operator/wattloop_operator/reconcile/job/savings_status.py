"""The savings in the status of a job, and its figures for people."""

from __future__ import annotations

from typing import Any

from wattloop_operator.api.objective import Objective
from wattloop_operator.api.recurring_training_job_status import JobFigures, Savings
from wattloop_operator.domain.quantities import KILOWATT_HOURS, MINUTES, metric_text, percent_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.energy.attempt_usage import DECIMALS, carbon_grams, money
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.changed_job import known_attempts
from wattloop_operator.reconcile.learning.costs import Measure, RecurrenceHistory, comparable_records
from wattloop_operator.reconcile.learning.job_savings import JobSavings, job_savings
from wattloop_operator.reconcile.learning.outdated_default import comparable_default
from wattloop_operator.reconcile.learning.policy_configurations import default_configuration

PERCENT_DECIMALS = 2


def savings_of(
    snapshot: Snapshot, left_out: frozenset[int] = frozenset(), measure: Measure = Measure.COST
) -> JobSavings:
    """The recurrences towards the present target, compared with the default configuration.

    Args:
        snapshot: The state of the job.
        left_out: Indices of recurrences that have not ended.
        measure: What is compared.
    """
    spec = snapshot.job.spec
    configuration, eta = default_configuration(spec), spec.objective.energy_weight_percent / 100
    default = comparable_default(
        comparable_records(snapshot), known_attempts(snapshot).profiles, configuration, eta=eta, measure=measure
    )
    return job_savings(
        job_observations.records_with_late_usage(snapshot),
        job_observations.known_profiles(snapshot),
        target=spec.objective.target.run_target,
        configuration=configuration,
        eta=eta,
        default=default,
        measure=measure,
        left_out=left_out,
    )


def savings_status(objective: Objective, costs: JobSavings, energy: JobSavings, time: JobSavings) -> Savings | None:
    """The savings so far; None until the default's cost is known.

    Args:
        objective: Of the job.
        costs: The recurrences, compared by cost.
        energy: The same, compared by energy.
        time: The same, compared by time.
    """
    if costs.default is None:
        return None
    estimates = {
        "cost_percent": (costs.saved_percent, PERCENT_DECIMALS),
        "latest_cost_percent": (costs.latest_percent, PERCENT_DECIMALS),
        "default_cost_joules": (costs.default.of_run, DECIMALS),
        "gpu_energy_joules": (energy.saved, DECIMALS),
        "duration_seconds": (time.saved, DECIMALS),
        "learning_gpu_energy_joules": (energy.learning, DECIMALS),
        "learning_duration_seconds": (time.learning, DECIMALS),
    }
    values: dict[str, Any] = {"recurrences": costs.compared_count}
    for name, (estimate, decimals) in estimates.items():
        if estimate is not None:
            ends = {f"low_{name}": estimate.low, name: estimate.value, f"high_{name}": estimate.high}
            values |= {field: round(value, decimals) for field, value in ends.items()}
    saved = energy.saved
    if saved is not None:
        price, carbon = money(saved.value, objective.price), carbon_grams(saved.value, objective.carbon)
        values |= {"money": price, "carbon_grams": carbon}
    return Savings.model_validate(values)


def recent_saving(costs: JobSavings, index: int) -> float | None:
    """The saving of one recurrence in percent for its summary in the status; None if it is not known."""
    saving = costs.of(index)
    return None if saving is None else round(saving.value, PERCENT_DECIMALS)


def job_figures(
    ended: list[RecurrenceHistory], costs: JobSavings, energy: JobSavings, time: JobSavings
) -> JobFigures | None:
    """The figures of the latest ended recurrence, and the savings, with units; None before the first has ended."""
    if not ended:
        return None
    return JobFigures(
        energy=KILOWATT_HOURS.text(ended[-1].cost_joules(1.0)),
        metric=metric_text(ended[-1].latest.metric),
        cost_saved=percent_text(costs.saved_percent),
        energy_saved=KILOWATT_HOURS.interval_text(energy.saved),
        time_saved=MINUTES.interval_text(time.saved),
    )
