"""Evidence of an attempt with another target about the present target, from the attempt's curve."""

from __future__ import annotations

from dataclasses import replace

from wattloop.wire.environment import RunTarget
from wattloop_planner.observations import Observation, Outcome


def retargeted(observation: Observation, target: RunTarget) -> Observation | None:
    """The observation that an attempt would have given with a target that it did not have.

    If the curve reaches the target, the attempt counts as reached at that epoch. If not, the target
    takes more epochs than were run, and the attempt counts as stopped: at an easier target, if it reached
    its own. The cost of an epoch remains as measured.

    Args:
        observation: An attempt with another target; its curve must be of the metric `target.metric`.
        target: The present target.

    Returns:
        None if the attempt says nothing about the target's epochs: it crashed, has no curve or ran for no
        epochs.
    """
    if observation.curve is None or observation.outcome is Outcome.CRASHED or observation.epochs <= 0:
        return None
    reached = observation.curve.first_reached(target)
    if reached is None:
        easier = observation.outcome is Outcome.REACHED
        return replace(observation, outcome=Outcome.STOPPED, other_target=False, easier_target=easier)
    epochs = min(reached, observation.epochs)
    return replace(
        observation,
        outcome=Outcome.REACHED,
        epochs=epochs,
        energy_joules=_until(epochs, observation, observation.energy_joules, observation.epoch_energy_joules),
        time_seconds=_until(epochs, observation, observation.time_seconds, observation.epoch_time_seconds),
        curve=observation.curve.before(epochs),
        other_target=False,
    )


def _until(epochs: float, observation: Observation, total: float, of_epoch: float | None) -> float:
    """Energy or time after some of an attempt's epochs; the profiled first epoch may be more expensive."""
    share = total * epochs / observation.epochs
    if of_epoch is None:
        return share
    return max(total - (observation.epochs - epochs) * of_epoch, share)
