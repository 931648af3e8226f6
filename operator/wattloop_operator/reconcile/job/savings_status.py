"""The savings in the status of a job, and its figures for people."""

from __future__ import annotations

from typing import Any

from wattloop_operator.api.recurring_training_job_status import JobFigures, Savings
from wattloop_operator.domain.quantities import energy_text, metric_text, percent_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.energy.attempt_usage import DECIMALS, carbon_grams, money
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.changed_job import known_attempts
from wattloop_operator.reconcile.learning.costs import RecurrenceHistory, comparable_records
from wattloop_operator.reconcile.learning.job_savings import JobSavings, job_savings
from wattloop_operator.reconcile.learning.outdated_default import comparable_default
from wattloop_operator.reconcile.learning.policy_configurations import default_configuration
from wattloop_planner.estimate import Estimate

PERCENT_DECIMALS = 2


def savings_of(snapshot: Snapshot, eta: float, left_out: frozenset[int] = frozenset()) -> JobSavings:
    """The recurrences towards the present target, compared with the default configuration.

    Args:
        snapshot: The state of the job.
        eta: Weight of energy in the cost; 1 compares energies.
        left_out: Indices of recurrences that have not ended.
    """
    spec = snapshot.job.spec
    configuration = default_configuration(spec)
    default = comparable_default(
        comparable_records(snapshot),
        known_attempts(snapshot).profiles,
        configuration,
        job_eta=spec.objective.energy_weight_percent / 100,
        eta=eta,
    )
    return job_savings(
        job_observations.records_with_late_usage(snapshot),
        job_observations.known_profiles(snapshot),
        target=spec.objective.target.run_target,
        configuration=configuration,
        eta=eta,
        default=default,
        left_out=left_out,
    )


def savings_status(snapshot: Snapshot, costs: JobSavings, left_out: frozenset[int]) -> Savings | None:
    """The savings so far; None until the default's cost is known."""
    default = costs.default
    if default is None:
        return None
    energy = savings_of(snapshot, 1.0, left_out).saved_joules if costs.saved_joules is not None else None
    joules = (
        (default.of_run, ("low_default_cost_joules", "default_cost_joules", "high_default_cost_joules")),
        (costs.saved_joules, ("low_cost_joules", "cost_joules", "high_cost_joules")),
        (costs.learning_joules, ("low_learning_cost_joules", "learning_cost_joules", "high_learning_cost_joules")),
    )
    latest = ("low_latest_cost_percent", "latest_cost_percent", "high_latest_cost_percent")
    values: dict[str, Any] = {"recurrences": costs.compared_count}
    for estimate, names in joules:
        values |= _bounded(names, estimate, DECIMALS)
    values |= _bounded(latest, costs.latest_percent, PERCENT_DECIMALS)
    if energy is not None:
        objective = snapshot.job.spec.objective
        values |= {
            "gpu_energy_joules": round(energy.value, DECIMALS),
            "money": money(energy.value, objective.price),
            "carbon_grams": carbon_grams(energy.value, objective.carbon),
        }
    return Savings.model_validate(values)


def recent_saving(costs: JobSavings, index: int) -> float | None:
    """The saving of one recurrence in percent for its summary in the status; None if it is not known."""
    saving = costs.of(index)
    return None if saving is None else round(saving.value, PERCENT_DECIMALS)


def job_figures(ended: list[RecurrenceHistory], eta: float, costs: JobSavings) -> JobFigures | None:
    """The figures of the latest ended recurrence, and the savings, with units; None before the first has ended."""
    if not ended:
        return None
    return JobFigures(
        cost=energy_text(ended[-1].cost_joules(eta)),
        metric=metric_text(ended[-1].latest.metric),
        saved=percent_text(costs.saved_percent),
    )


def _bounded(names: tuple[str, str, str], estimate: Estimate | None, decimals: int) -> dict[str, Any]:
    """The fields of the lower bound, the value and the upper bound of an estimate; none if it is not known."""
    if estimate is None:
        return {}
    values = (estimate.low, estimate.value, estimate.high)
    return {name: round(value, decimals) for name, value in zip(names, values, strict=True)}
