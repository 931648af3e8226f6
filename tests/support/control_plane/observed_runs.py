"""What an operator in a test's process has made of a job's runs."""

from __future__ import annotations

from typing import Any

from support.control_plane.in_process_operator import InProcessOperator
from support.control_plane.waiting import Object
from wattloop_operator.domain.names import JobKey, recurrence_name, slot_of_request
from wattloop_operator.reconcile.learning.job_observations import observations
from wattloop_planner.observations import Observation


def first_of(key: JobKey, request: str = "first", attempt: int = 0) -> str:
    """Name of an attempt of a job's first recurrence."""
    return recurrence_name(key.name, 0, slot_of_request(request), attempt)


def learned(operator: InProcessOperator, key: JobKey) -> tuple[Observation, ...]:
    """The observations of a job."""
    return observations(operator.store.observations.of_name(key.namespace, key.name))


def condition(thing: Object, kind: str) -> dict[str, Any]:
    """The condition of this type."""
    found: dict[str, Any] = next(each for each in thing["status"]["conditions"] if each["type"] == kind)
    return found
