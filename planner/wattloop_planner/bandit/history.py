"""Observations in one order, whatever the order they arrived in."""

from __future__ import annotations

import math

from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.observations import Observation


def own_observations(context: DecisionContext) -> tuple[Observation, ...]:
    """Those of this job on this GPU model, in order: all that a policy without a model can compare costs with."""
    return tuple(
        observation
        for observation in in_order(context.observations)
        if not observation.from_other_job and same_model(observation.gpu_model, context.gpu_model)
    )


def same_model(one: str, other: str) -> bool:
    """Whether costs on these GPU models compare: the same, or one of them unknown."""
    return one == other or not one or not other


def in_order(observations: tuple[Observation, ...]) -> tuple[Observation, ...]:
    """Sorted by (other job's first, recurrence, attempt), a repeated report of one attempt counted once.

    Two different reports of the same attempt of this job leave the one that sorts first, so that the result does not
    depend on the order of arrival.
    """
    if _rising(observations):
        return observations
    ranked = sorted(observations, key=_rank)
    kept: list[Observation] = []
    for observation in ranked:
        if kept and _same_attempt(kept[-1], observation):
            continue
        kept.append(observation)
    return tuple(kept)


def _rising(observations: tuple[Observation, ...]) -> bool:
    """Whether these are of this job alone, each attempt once and in order."""
    last = (-math.inf, -math.inf)
    for observation in observations:
        place = (observation.recurrence, observation.attempt)
        if observation.from_other_job or place <= last:
            return False
        last = place
    return True


def _rank(observation: Observation) -> tuple[bool, int, int, int, str, float, float, float]:
    return (
        not observation.from_other_job,
        observation.recurrence,
        observation.attempt,
        observation.batch_size,
        observation.outcome.value,
        observation.epochs,
        observation.energy_joules,
        observation.time_seconds,
    )


def _same_attempt(one: Observation, other: Observation) -> bool:
    if one.from_other_job or other.from_other_job:
        return one == other
    return (one.recurrence, one.attempt) == (other.recurrence, other.attempt)
