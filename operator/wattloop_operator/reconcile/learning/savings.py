"""What a job's recurrences saved against the default configuration, from what is remembered of it."""

from __future__ import annotations

from collections.abc import Sequence

from wattloop.cost import CostModel
from wattloop_operator.domain.records import ObservationRecord, PowerProfileRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.energy.usage import believable
from wattloop_operator.reconcile.learning import observations
from wattloop_planner.bandit.fixed import DefaultRun, default_cost_joules
from wattloop_planner.observations import Outcome


def default_cost(snapshot: Snapshot) -> float | None:
    """Expected cost in joules of one recurrence in the default configuration; None before it is known."""
    return _default_cost(snapshot, snapshot.job.spec.objective.energy_weight_percent / 100)


def default_energy(snapshot: Snapshot) -> float | None:
    """Expected energy in joules of one recurrence in the default configuration; None before it is known."""
    # With all weight on energy, the cost is the energy.
    return _default_cost(snapshot, 1.0)


def _default_cost(snapshot: Snapshot, eta: float) -> float | None:
    return default_cost_of(
        observations.remembered(snapshot),
        observations.profiles(snapshot),
        default_batch_size=snapshot.job.spec.batch_size.default,
        eta=eta,
    )


def default_cost_of(
    records: Sequence[ObservationRecord], profiles: Sequence[PowerProfileRecord], *, default_batch_size: int, eta: float
) -> float | None:
    """The same, from records and profiles without their job.

    Args:
        records: Of one job, ordered by (recurrence, attempt).
        profiles: Of the same job.
        default_batch_size: The job's default batch size.
        eta: Weight of energy in the cost, 0 to 1.
    """
    runs = [
        observation
        for observation in observations.observations(records)
        if observation.batch_size == default_batch_size and observation.outcome in (Outcome.REACHED, Outcome.EXHAUSTED)
    ]
    if not runs:
        return None
    profile = observations.profile_on_latest_gpus(records, profiles, default_batch_size)
    epoch_cost = None
    if profile is not None:
        highest = max(profile.measurements, key=lambda each: each.power_limit_watts)
        model = CostModel(eta, runs[-1].max_power_watts)
        epoch_cost = model.cost_joules(highest.energy_joules, highest.time_seconds) / highest.epochs
    cost = default_cost_joules(
        [DefaultRun(run.outcome is Outcome.REACHED, run.epochs, run.cost_joules(eta)) for run in runs], epoch_cost
    )
    return None if cost is None else believable(cost)
