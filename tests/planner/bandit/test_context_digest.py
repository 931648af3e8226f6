"""The digest of a decision context: every field counts, and its canonical form is fixed."""

from dataclasses import fields, replace
from typing import Any

import pytest

from wattloop.wire.environment import RunTarget
from wattloop_planner.bandit.configuration import Configuration, Parameter
from wattloop_planner.bandit.context_digest import context_digest
from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, Outcome, StartUp

CURVE = MetricCurve((1.0, 2.5), (0.5, 0.75))
TARGET = RunTarget("accuracy", 0.9, maximize=True, consecutive_evaluations=2)
OBSERVATION = Observation(3, 1, 64, Outcome.REACHED, 7.5, 1000.0, 90.0, 400.0, "GPU", 100.0, 9.0)
CONTEXT = DecisionContext((32, 64), 64, 0.5, 4, 0, (OBSERVATION,), 11, (Configuration(32),), "GPU", 5, 50)
LEARNING_RATE = Parameter("learning_rate", ("0.1", "1"), "0.1")
WITH_CURVE = replace(CONTEXT, observations=(replace(OBSERVATION, curve=CURVE),), target=TARGET)
FULL_OBSERVATION = replace(
    OBSERVATION,
    curve=CURVE,
    parameters=(("learning_rate", "0.1"),),
    template_digest="0a",
    image_digest="sha256:1b",
    start_up=StartUp(200.0, 15.0),
)
FULL_CONTEXT = replace(CONTEXT, observations=(FULL_OBSERVATION,), target=TARGET, parameters=(LEARNING_RATE,))
FULL_CONTEXT = replace(FULL_CONTEXT, excluded=(Configuration(64),))


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
        case RunTarget() | MetricCurve() | StartUp():
            return None
        case None:
            return 1
        case _:
            return ()


@pytest.mark.parametrize("name", [field.name for field in fields(DecisionContext)])
def test_every_field_of_a_context_changes_its_digest(name: str) -> None:
    other = replace(FULL_CONTEXT, **{name: changed(getattr(FULL_CONTEXT, name))})
    assert context_digest(other) != context_digest(FULL_CONTEXT)


@pytest.mark.parametrize("name", [field.name for field in fields(Observation)])
def test_every_field_of_an_observation_changes_the_digest(name: str) -> None:
    (observation,) = FULL_CONTEXT.observations
    other = replace(observation, **{name: changed(getattr(observation, name))})
    assert context_digest(replace(FULL_CONTEXT, observations=(other,))) != context_digest(FULL_CONTEXT)


def test_the_digest_of_a_fixed_context_never_changes() -> None:
    assert context_digest(CONTEXT) == "ac13a3e2814ef8334a5898d28df5fc7c"


def test_the_digest_of_a_fixed_context_with_target_and_curve_never_changes() -> None:
    assert context_digest(WITH_CURVE) == "c6788591487851d063131aa386455d8d"


def test_the_digest_of_several_observations_never_changes() -> None:
    later = replace(OBSERVATION, recurrence=4, from_other_job=True, gpu_model='"é\\', epoch_time_seconds=None)
    context = replace(FULL_CONTEXT, observations=(OBSERVATION, replace(FULL_OBSERVATION, start_up=None), later))
    assert context_digest(context) == "1434b71915268e8c6825c4d30f0ab575"


@pytest.mark.parametrize("name", [field.name for field in fields(RunTarget)])
def test_every_field_of_a_target_changes_the_digest(name: str) -> None:
    other = replace(TARGET, **{name: changed(getattr(TARGET, name))})
    assert context_digest(replace(FULL_CONTEXT, target=other)) != context_digest(FULL_CONTEXT)
