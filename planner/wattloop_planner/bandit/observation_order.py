"""Observations in a fixed order, independent of the order of arrival."""

import math

from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.observations import Observation


def own_observations(context: DecisionContext) -> tuple[Observation, ...]:
    """The observations of this job on this GPU model, in order.

    A policy without a model of costs can compare only these.
    """
    return tuple(
        observation
        for observation in in_order(context.observations)
        if not observation.from_other_job and equal_or_unknown(observation.gpu_model, context.gpu_model)
    )


def equal_or_unknown(one: str, other: str) -> bool:
    """Whether two GPU models or two digests agree, so that attempts are comparable; an empty text is unknown."""
    return one == other or not one or not other


def in_order(observations: tuple[Observation, ...]) -> tuple[Observation, ...]:
    """Sorted by (observations of other jobs first, recurrence, attempt), without duplicates.

    Of two different reports of one attempt of this job, the one that sorts first remains, so that
    the result does not depend on the order of arrival.
    """
    if _is_ordered(observations):
        return observations
    ranked = sorted(observations, key=_rank)
    unique: list[Observation] = []
    for observation in ranked:
        if unique and _same_attempt(unique[-1], observation):
            continue
        unique.append(observation)
    return tuple(unique)


def _is_ordered(observations: tuple[Observation, ...]) -> bool:
    """Whether all observations are of this job, in order and without duplicates."""
    last = (-math.inf, -math.inf)
    for observation in observations:
        key = (observation.recurrence, observation.attempt)
        if observation.from_other_job or key <= last:
            return False
        last = key
    return True


def _rank(observation: Observation) -> tuple[object, ...]:
    curve = observation.curve
    return (
        not observation.from_other_job,
        observation.recurrence,
        observation.attempt,
        observation.batch_size,
        observation.outcome.value,
        observation.epochs,
        observation.energy_joules,
        observation.time_seconds,
        () if curve is None else (curve.epochs, curve.metrics),
        observation.template_digest,
        observation.image_digest,
    )


def _same_attempt(one: Observation, other: Observation) -> bool:
    if one.from_other_job or other.from_other_job:
        return one == other
    return (one.recurrence, one.attempt) == (other.recurrence, other.attempt)
