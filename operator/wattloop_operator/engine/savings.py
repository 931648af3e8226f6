"""What a job's recurrences saved against the default configuration, from what is remembered of it."""

from __future__ import annotations

from wattloop.cost import CostModel
from wattloop_operator.engine import memory
from wattloop_operator.engine.decide import known_profile
from wattloop_operator.engine.snapshot import Snapshot
from wattloop_planner.observations import Outcome
from wattloop_planner.savings import DefaultRun, default_cost_joules


def default_cost(snapshot: Snapshot) -> float | None:
    """Expected cost in joules of one recurrence in the default configuration; None before it is known."""
    spec = snapshot.job.spec
    default, eta = spec.batch_size.default, spec.objective.energy_weight_percent / 100
    runs = [
        observation
        for observation in memory.observations(memory.remembered(snapshot))
        if observation.batch_size == default and observation.outcome in (Outcome.REACHED, Outcome.EXHAUSTED)
    ]
    if not runs:
        return None
    profile = known_profile(snapshot, default)
    epoch_cost = None
    if profile is not None:
        highest = max(profile.measurements, key=lambda each: each.power_limit_watts)
        model = CostModel(eta, runs[-1].max_power_watts)
        epoch_cost = model.cost_joules(highest.energy_joules, highest.time_seconds) / highest.epochs
    return default_cost_joules(
        [DefaultRun(run.outcome is Outcome.REACHED, run.epochs, run.cost_joules(eta)) for run in runs], epoch_cost
    )
