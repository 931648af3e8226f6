"""The digest of a decision context: every field counts, and its canonical form is fixed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from wattloop_planner.bandit.context_digest import context_digest
from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.observations import Observation, Outcome

OBSERVATION = Observation(3, 1, 64, Outcome.REACHED, 7.5, 1000.0, 90.0, 400.0, "GPU", 100.0, 9.0)
CONTEXT = DecisionContext((32, 64), 64, 0.5, 4, 0, (OBSERVATION,), 11, (32,), "GPU", 5, 50)


def changed(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case Outcome():
            return Outcome.STOPPED
        case str():
            return value + "x"
        case None:
            return 1
        case _:
            return ()


@pytest.mark.parametrize("name", [field.name for field in fields(DecisionContext)])
def test_every_field_of_a_context_changes_its_digest(name: str) -> None:
    other = replace(CONTEXT, **{name: changed(getattr(CONTEXT, name))})
    assert context_digest(other) != context_digest(CONTEXT)


@pytest.mark.parametrize("name", [field.name for field in fields(Observation)])
def test_every_field_of_an_observation_changes_the_digest(name: str) -> None:
    other = replace(OBSERVATION, **{name: changed(getattr(OBSERVATION, name))})
    assert context_digest(replace(CONTEXT, observations=(other,))) != context_digest(CONTEXT)


def test_the_digest_of_a_fixed_context_never_changes() -> None:
    assert context_digest(CONTEXT) == "ac13a3e2814ef8334a5898d28df5fc7c"


def test_the_last_bit_of_a_float_changes_the_digest() -> None:
    other = replace(OBSERVATION, energy_joules=1000.0000000000001)
    assert context_digest(replace(CONTEXT, observations=(other,))) != context_digest(CONTEXT)
