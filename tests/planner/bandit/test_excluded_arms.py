"""Arms that a context excludes: no policy chooses them, and their observations still inform about the others."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import ChoiceKind, DecisionContext, NoFeasibleArmError
from wattloop_planner.observations import Observation, Outcome
from wattloop_research.simulation.policies import policy_named

SIZES, DEFAULT = (16, 32, 64, 128, 256), 64
OUTCOMES = st.sampled_from((Outcome.REACHED, Outcome.REACHED, Outcome.EXHAUSTED, Outcome.STOPPED, Outcome.CRASHED))
RUNS = st.lists(st.tuples(st.sampled_from(SIZES), st.floats(10.0, 1000.0), OUTCOMES), max_size=25)
EXCLUDED = st.sets(st.sampled_from([size for size in SIZES if size != DEFAULT]))


@pytest.mark.parametrize("name", ["thompsonSampling", "zeus", "grid", "default"])
@given(runs=RUNS, excluded=EXCLUDED, attempt=st.integers(0, 2))
def test_no_policy_chooses_an_excluded_arm(
    name: str, runs: list[tuple[int, float, Outcome]], excluded: set[int], attempt: int
) -> None:
    observations = tuple(
        Observation(i, 0, size, outcome, cost / 10, cost, cost / 100, 200.0)
        for i, (size, cost, outcome) in enumerate(runs)
    )
    context = DecisionContext(
        SIZES,
        DEFAULT,
        1.0,
        len(runs),
        attempt,
        observations,
        seed=1,
        excluded=tuple(Configuration(size) for size in sorted(excluded)),
        max_epochs=90,
    )
    try:
        decision = policy_named(name).decide(context)
    except NoFeasibleArmError:
        return
    assert decision.batch_size not in excluded


def test_the_incumbent_falls_back_to_the_cheapest_arm_that_is_left(
    context_after: Callable[..., DecisionContext],
) -> None:
    runs = [(64, 200.0, Outcome.REACHED), (32, 100.0, Outcome.REACHED), (128, 150.0, Outcome.REACHED)] * 4
    context = context_after([32, 64, 128], 64, runs, remaining_recurrences=0)
    policy = policy_named("thompsonSampling")
    assert policy.decide(context).batch_size == 32
    guarded = policy.decide(replace(context, excluded=(Configuration(32),)))
    assert guarded.batch_size == 128
    (arm,) = [each for each in guarded.arms if each.batch_size == 32]
    assert (arm.pruned, arm.note) == (True, "its final metric falls short of the default's")


def test_a_cheaper_arm_that_may_not_run_is_no_reason_for_trials(context_after: Callable[..., DecisionContext]) -> None:
    """Neither an excluded arm nor one that crashed too often counts as a saving that a trial may give."""
    runs = [(64, 200.0, Outcome.REACHED), (32, 100.0, Outcome.REACHED), (16, 40.0, Outcome.REACHED)] * 4
    policy = policy_named("thompsonSampling")
    excluded = policy.decide(context_after([16, 32, 64], 64, runs, excluded=(Configuration(16),)))
    crashed = policy.decide(context_after([16, 32, 64], 64, [*runs, *[(16, 1.0, Outcome.CRASHED)] * 3]))
    for decision in (excluded, crashed):
        assert (decision.batch_size, decision.kind) == (32, ChoiceKind.INCUMBENT)


def test_an_excluded_arm_still_informs_about_the_others(context_after: Callable[..., DecisionContext]) -> None:
    runs = [(64, 200.0, Outcome.REACHED), (32, 100.0, Outcome.REACHED)] * 4
    policy = policy_named("thompsonSampling")
    with_it = policy.decide(context_after([16, 32, 64], 64, runs, excluded=(Configuration(32),))).arms
    without = policy.decide(context_after([16, 32, 64], 64, runs)).arms
    assert [arm.mean_cost_joules for arm in with_it] == [arm.mean_cost_joules for arm in without]


def test_a_job_whose_other_arms_all_crashed_is_told_which_are_excluded(
    context_after: Callable[..., DecisionContext],
) -> None:
    context = context_after([32, 64], 64, [(64, 1.0, Outcome.CRASHED)] * 3, excluded=(Configuration(32),))
    with pytest.raises(NoFeasibleArmError, match=r"but 32, which the metric guard excludes, crashed: 64 \(3 times\)"):
        policy_named("thompsonSampling").decide(context)
