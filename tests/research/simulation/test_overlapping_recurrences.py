"""Recurrences that arrive while others run: what a decision knows, and when an attempt begins."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext, Policy
from wattloop_planner.bandit.zeus_policy import Overlap, ZeusPolicy
from wattloop_research.simulation.job_trace import job_trace
from wattloop_research.simulation.overlapping_recurrences import ArrivingJob, simulate, simulate_arrivals
from wattloop_research.simulation.policies import POLICIES, policy_named
from wattloop_research.simulation.simulator import Scenario, SimulatedAttempt
from wattloop_research.simulation.traces import TracedWorkload, read_power_trace, read_train_trace

TRACES = Path(__file__).parents[2] / "data" / "zeus-traces"
TRAIN = read_train_trace(TRACES / "summary_train.csv")
POWER = read_power_trace(TRACES / "summary_power_v100.csv")
WORKLOAD = TracedWorkload("cifar100", "shufflenetv2", "adadelta")
TRACE = job_trace(TRAIN, POWER, workload=WORKLOAD, targets=(0.6,), eta=0.5)
# Longer than any attempt of this trace.
NEVER_OVERLAPPING_SECONDS = 1e7
# Gaps from none to a few attempts long.
gaps = st.lists(st.sampled_from([0.0, 30.0, 300.0, 900.0, 5000.0]), min_size=1, max_size=25)


def scenario(recurrences: int, **fields: Any) -> Scenario:
    settings = {"job": "cifar", "gpu": "V100", "trace": TRACE, "target_metric": 0.6, "max_epochs": 100}
    return Scenario(**{**settings, "default_batch_size": 1024, "recurrences": recurrences, **fields})


def run(
    policy: Policy, arrivals: tuple[float, ...], seed: int = 1, slots: int | None = None, **fields: Any
) -> list[SimulatedAttempt]:
    job = ArrivingJob(scenario(len(arrivals), **fields), policy, arrivals)
    (result,) = simulate_arrivals([job], seed, slots)
    assert not result.failure
    return result.attempts


class Recording:
    """A policy that keeps the contexts of another one's decisions."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.contexts: list[DecisionContext] = []

    def decide(self, context: DecisionContext) -> Decision:
        self.contexts.append(context)
        return self._policy.decide(context)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("curves", [True, False])
def test_one_recurrence_at_a_time_is_simulated_as_in_sequence(name: str, curves: bool) -> None:
    arrivals = tuple(NEVER_OVERLAPPING_SECONDS * index for index in range(30))
    attempts = run(policy_named(name), arrivals, with_curves=curves)
    expected = simulate(scenario(30, with_curves=curves), policy_named(name), 1)
    assert [replace(each, start_seconds=0.0) for each in attempts] == [
        replace(each, start_seconds=0.0) for each in expected
    ]
    assert all(each.in_flight == 0 for each in attempts)


@settings(max_examples=25, deadline=None)
@given(gaps=gaps, seed=st.integers(0, 3), overlap=st.sampled_from(Overlap))
def test_a_decision_knows_what_has_ended_and_what_runs_and_nothing_else(
    gaps: list[float], seed: int, overlap: Overlap
) -> None:
    policy = Recording(ZeusPolicy(overlap=overlap))
    attempts = run(policy, tuple(itertools.accumulate(gaps)), seed)
    by_key = {(each.recurrence, each.attempt): each for each in attempts}
    assert len(policy.contexts) == len(by_key)
    for context in policy.contexts:
        decided = by_key[context.recurrence, context.attempt]
        others = [each for each in attempts if each is not decided]
        known = [(each.recurrence, each.attempt) for each in context.observations]
        for each in others:
            key = (each.recurrence, each.attempt)
            assert (key in known) <= (each.end_seconds <= decided.start_seconds)
            assert (key in known) >= (each.end_seconds < decided.start_seconds)
        assert len(context.running) == decided.in_flight
        running = [each for each in others if each.start_seconds < decided.start_seconds < each.end_seconds]
        assert len(running) <= decided.in_flight
        assert known == sorted(known)


@settings(max_examples=20, deadline=None)
@given(gaps=gaps, later=st.floats(1.0, 1e5), cut=st.integers(0, 24), name=st.sampled_from(sorted(POLICIES)))
def test_what_arrives_later_changes_nothing_before(gaps: list[float], later: float, cut: int, name: str) -> None:
    arrivals = tuple(itertools.accumulate(gaps))
    moved = (*arrivals[:cut], *(each + later for each in arrivals[cut:]))
    horizon = arrivals[cut] if cut < len(arrivals) else float("inf")
    before = [
        [each for each in run(policy_named(name), times) if each.start_seconds < horizon] for times in (arrivals, moved)
    ]
    assert before[0] == before[1]


def test_power_limits_are_measured_by_each_attempt_that_begins_before_a_profiled_epoch_ends() -> None:
    profiled = TRACE.default(1024).profiled.time_seconds
    attempts = run(policy_named("default"), (0.0, profiled * 0.9, profiled * 1.1), optimise_power=True)
    assert [each.profiled for each in attempts] == [True, True, False]
    assert len({each.power_limit_watts for each in attempts}) == 1


def test_beside_a_running_attempt_best_known_runs_the_cheapest_size_in_every_stage() -> None:
    arrivals = tuple(itertools.accumulate([0.0, *[400.0, 10.0] * 40]))
    attempts = run(ZeusPolicy(overlap=Overlap.BEST_KNOWN), arrivals)
    beside = [each for each in attempts if each.in_flight]
    assert beside
    assert {each.decision for each in beside} == {ChoiceKind.INCUMBENT}
    for each in beside:
        reached = [
            (other.result.cost_joules, other.batch_size)
            for other in attempts
            if other.end_seconds <= each.start_seconds and other.result.outcome == "reached"
        ]
        assert each.batch_size == (min(reached)[1] if reached else 1024)


def test_beside_a_running_attempt_posterior_waits_for_the_pruning_and_then_samples() -> None:
    arrivals = tuple(itertools.accumulate([0.0, *[400.0, 10.0] * 60]))
    attempts = run(ZeusPolicy(overlap=Overlap.POSTERIOR), arrivals)
    kinds = [each.decision for each in attempts if each.in_flight]
    assert kinds[0] is ChoiceKind.INCUMBENT
    assert kinds[-1] is ChoiceKind.SAMPLE


@settings(max_examples=20, deadline=None)
@given(gaps=gaps, slots=st.integers(1, 4))
def test_no_more_recurrences_run_than_there_are_slots_and_the_first_to_arrive_begins_first(
    gaps: list[float], slots: int
) -> None:
    arrivals = tuple(itertools.accumulate(gaps))
    half = len(arrivals) // 2
    jobs = [
        ArrivingJob(scenario(len(times)), policy_named("zeus"), times) for times in (arrivals[:half], arrivals[half:])
    ]
    attempts = [each for result in simulate_arrivals(jobs, 1, slots) for each in result.attempts]
    for each in attempts:
        assert sum(one.start_seconds <= each.start_seconds < one.end_seconds for one in attempts) <= slots
    starts = [
        each.start_seconds
        for result in simulate_arrivals(jobs, 1, slots)
        for each in result.attempts
        if each.attempt == 0
    ]
    assert starts == sorted(starts)
    assert all(start >= arrival for start, arrival in zip(starts, arrivals, strict=True))


def test_a_job_without_a_feasible_size_ends_and_leaves_its_slot_to_the_others() -> None:
    unreachable = scenario(40, max_epochs=1)
    jobs = [
        ArrivingJob(unreachable, policy_named("zeus"), (0.0,) * 40),
        ArrivingJob(scenario(3), policy_named("zeus"), (0.0,) * 3),
    ]
    failed, other = simulate_arrivals(jobs, 1, slots=1)
    assert "pruned every batch size" in failed.failure
    assert {each.recurrence for each in other.attempts} == {0, 1, 2}
