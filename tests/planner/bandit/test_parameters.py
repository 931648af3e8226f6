"""Decisions over batch sizes and further parameters together."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop_planner.bandit.configuration import Configuration, Parameter
from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext, PartialObservation, Policy
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.bandit.zeus_policy import ZeusPolicy
from wattloop_planner.observations import Observation, Outcome
from wattloop_research.simulation.policies import GridPolicy

SIZES = (32, 64, 128, 256, 512, 1024)
RATE = Parameter("learning_rate", ("0.05", "0.2", "0.8"), "0.05")
OPTIMIZER = Parameter("optimizer", ("sgd", "adam"), "sgd")
MAX_POWER_WATTS = 400.0


def context(
    observations: tuple[Observation, ...] = (), parameters: tuple[Parameter, ...] = (RATE,), default: int = 256
) -> DecisionContext:
    recurrence = max((o.recurrence for o in observations), default=-1) + 1
    return DecisionContext(
        SIZES, default, 0.5, recurrence, 0, observations, seed=recurrence, gpu_model="A", max_epochs=200,
        parameters=parameters,
    )  # fmt: skip


class SyntheticJob:
    """A job whose best learning rate rises with the batch size, and that diverges at rates far above it.

    Args:
        best: The learning rate that is best at batch size 128.
        noise: Standard deviation of log epochs.
        seed: Seed of the noise.
    """

    def __init__(self, best: float = 0.2, noise: float = 0.0, seed: int = 0) -> None:
        self.best, self.noise, self._random = best, noise, random.Random(seed)

    def epochs(self, configuration: Configuration) -> float | None:
        """Typical epochs to the target; None if the training diverges."""
        rate = float(dict(configuration.parameters)["learning_rate"])
        distance = math.log2(rate / (self.best * (configuration.batch_size / 128) ** 0.7))
        if distance > 3:
            return None
        return 4 * (1 + configuration.batch_size / 512) * (1 + 0.25 * distance**2)

    def epoch_joules(self, configuration: Configuration) -> float:
        return 1000.0 * (1 + 32 / configuration.batch_size)

    def cost(self, configuration: Configuration) -> float:
        epochs = self.epochs(configuration)
        return math.inf if epochs is None else epochs * self.epoch_joules(configuration)

    def attempt(self, policy: Policy, given: DecisionContext) -> tuple[Decision, Observation]:
        """Decide and run one attempt; a trial that diverges ends after its first epoch."""
        decision = policy.decide(given)
        configuration = decision.configuration
        energy, typical = self.epoch_joules(configuration), self.epochs(configuration)
        epochs, outcome = 1.0, Outcome.DIVERGED
        if typical is not None:
            epochs, outcome = round(typical * math.exp(self._random.gauss(0.0, self.noise))), Outcome.REACHED
            stop = decision.stop_cost_joules
            if decision.kind is ChoiceKind.TRIAL and isinstance(policy, ThompsonSamplingPolicy):
                partial = PartialObservation(
                    decision.batch_size, 1.0, energy, 2.0, MAX_POWER_WATTS, energy, 2.0, parameters=decision.parameters
                )
                stop = policy.review(given, decision, partial)
            per_epoch = 0.5 * energy + 0.5 * MAX_POWER_WATTS * 2.0
            if stop is not None and stop < epochs * per_epoch:
                epochs, outcome = max(stop / per_epoch, 1.0), Outcome.STOPPED
        return decision, Observation(
            given.recurrence, given.attempt, decision.batch_size, outcome, epochs, epochs * energy, epochs * 2.0,
            MAX_POWER_WATTS, "A", energy, 2.0, parameters=decision.parameters,
        )  # fmt: skip

    def runs(self, policy: Policy, count: int, default: int = 256) -> list[tuple[Decision, Observation]]:
        """The first attempts of a job; attempts after the first of a recurrence count too."""
        found: list[tuple[Decision, Observation]] = []
        recurrence = attempt = 0
        while len(found) < count:
            given = replace(
                context(tuple(o for _, o in found), default=default), recurrence=recurrence, attempt=attempt
            )
            found.append(self.attempt(policy, given))
            reached = found[-1][1].outcome is Outcome.REACHED
            recurrence, attempt = (recurrence + 1, 0) if reached else (recurrence, attempt + 1)
        return found


def chosen(decision: Decision) -> Configuration:
    return decision.configuration


def mean_costs(decision: Decision) -> dict[Configuration, float]:
    return {arm.configuration: arm.mean_cost_joules or math.inf for arm in decision.arms}


def moved_knobs(one: Configuration, other: Configuration) -> int:
    differing = sum(x != y for x, y in zip(one.parameters, other.parameters, strict=True))
    return differing + (one.batch_size != other.batch_size)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(SIZES), st.floats(0.02, 2.0), st.integers(0, 1000))
def test_the_first_trials_move_one_knob(default: int, best: float, seed: int) -> None:
    job = SyntheticJob(best, noise=0.1, seed=seed)
    runs = job.runs(ThompsonSamplingPolicy(), 3, default)
    for index, (decision, _) in enumerate(runs):
        if decision.kind is ChoiceKind.TRIAL and index == 1:
            assert moved_knobs(chosen(decision), chosen(runs[0][0])) == 1


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(SIZES), st.floats(0.02, 2.0), st.integers(0, 1000))
def test_a_trial_moves_one_knob_or_is_believed_cheaper_than_a_run_was(default: int, best: float, seed: int) -> None:
    runs = SyntheticJob(best, noise=0.1, seed=seed).runs(ThompsonSamplingPolicy(), 8, default)
    for index, (decision, _) in enumerate(runs):
        if decision.kind is not ChoiceKind.TRIAL:
            continue
        ran = {chosen(earlier) for earlier, _ in runs[:index]}
        means = {arm.configuration: arm.mean_cost_joules or math.inf for arm in decision.arms}
        cheaper = means[chosen(decision)] < max(means[each] for each in ran)
        assert cheaper or min(moved_knobs(chosen(decision), each) for each in ran) <= 1


def test_most_jobs_run_a_nearly_best_configuration_within_a_third_of_the_runs_of_a_grid() -> None:
    found = []
    for default in SIZES:
        costs_of = context(default=default).space.configurations
        for seed in range(6):
            job = SyntheticJob(best=(0.1, 0.2, 0.4)[seed % 3], noise=0.1, seed=seed)
            runs = job.runs(ThompsonSamplingPolicy(), 6, default)
            found.append(min(job.cost(chosen(d)) for d, _ in runs) <= 1.15 * min(map(job.cost, costs_of)))
    assert sum(found) >= 0.6 * len(found)


def test_a_configuration_that_diverged_is_not_tried_again() -> None:
    runs = SyntheticJob(best=0.05, noise=0.1).runs(ThompsonSamplingPolicy(), 40)
    diverged = [chosen(decision) for decision, observation in runs if observation.outcome is Outcome.DIVERGED]
    assert diverged
    assert len(set(diverged)) == len(diverged)


def diverged_at(configuration: Configuration) -> tuple[Observation, ...]:
    """A default that reached the target, and another configuration that diverged."""
    job = SyntheticJob()
    _, first = job.attempt(ThompsonSamplingPolicy(), context())
    return first, replace(
        first, recurrence=1, batch_size=configuration.batch_size, parameters=configuration.parameters,
        outcome=Outcome.DIVERGED, epochs=1.0,
    )  # fmt: skip


def test_divergence_excludes_neither_a_neighbouring_batch_size_nor_a_neighbouring_value() -> None:
    decision = ThompsonSamplingPolicy().decide(context(diverged_at(Configuration(256, (("learning_rate", "0.2"),)))))
    pruned = {arm.configuration: arm.note for arm in decision.arms if arm.pruned}
    assert pruned == {Configuration(256, (("learning_rate", "0.2"),)): "diverged"}


def test_divergence_makes_the_value_seem_longer_and_leaves_the_batch_sizes_with_other_values() -> None:
    policy = ThompsonSamplingPolicy()

    observations = diverged_at(Configuration(256, (("learning_rate", "0.2"),)))
    before, after = (mean_costs(policy.decide(context(each))) for each in (observations[:1], observations))
    same_rate = Configuration(512, (("learning_rate", "0.2"),))
    assert after[same_rate] > 1.1 * before[same_rate]
    for size in SIZES:
        other_rate = Configuration(size, (("learning_rate", "0.05"),))
        assert after[other_rate] == pytest.approx(before[other_rate], rel=0.15)


def test_a_configuration_that_has_reached_the_target_stays_after_it_diverged() -> None:
    first, _ = diverged_at(Configuration(256))
    again = replace(first, recurrence=1, outcome=Outcome.DIVERGED, epochs=1.0)
    decision = ThompsonSamplingPolicy().decide(context((first, again)))
    assert not any(arm.note == "diverged" for arm in decision.arms)


def test_a_configuration_is_tried_again_after_it_diverged_in_another_regime() -> None:
    window = ThompsonSamplingPolicy(window=1)
    first, diverged = diverged_at(Configuration(256, (("learning_rate", "0.2"),)))
    decision = window.decide(context((first, diverged, replace(first, recurrence=2))))
    assert not any(arm.pruned for arm in decision.arms)


@given(st.permutations(RATE.candidates), st.booleans())
@settings(max_examples=12, deadline=None)
def test_the_order_of_candidates_and_parameters_changes_no_decision(candidates: list[str], swapped: bool) -> None:
    job = SyntheticJob(noise=0.1)
    observations = tuple(
        replace(o, parameters=(*o.parameters, ("optimizer", "sgd"))) for _, o in job.runs(ThompsonSamplingPolicy(), 4)
    )
    rate = replace(RATE, candidates=tuple(candidates))
    parameters = (OPTIMIZER, rate) if swapped else (rate, OPTIMIZER)
    usual = ThompsonSamplingPolicy().decide(context(observations, (RATE, OPTIMIZER)))
    other = ThompsonSamplingPolicy().decide(context(observations, parameters))
    assert (other.batch_size, dict(other.parameters)) == (usual.batch_size, dict(usual.parameters))


def test_the_unit_of_a_linear_parameter_changes_no_decision() -> None:
    decisions = []
    for factor in (1, 1000):
        values = [f"{factor * each:g}" for each in (0.0, 0.25, 0.5)]
        parameter = Parameter("dropout", tuple(values), values[0])
        observations = tuple(
            replace(o, parameters=(("dropout", values[0]),))
            for _, o in SyntheticJob().runs(ThompsonSamplingPolicy(), 1)
        )
        decision = ThompsonSamplingPolicy().decide(context(observations, (parameter,)))
        decisions.append((decision.batch_size, values.index(dict(decision.parameters)["dropout"])))
    assert decisions[0] == decisions[1]


def test_the_grid_runs_each_configuration_once() -> None:
    assert len({chosen(decision) for decision, _ in SyntheticJob().runs(GridPolicy(beta=math.inf), 24)}) == 18


def test_policy_zeus_refuses_several_candidates_and_keeps_single_ones() -> None:
    with pytest.raises(ValueError, match="policy zeus chooses the batch size alone, but parameter learning_rate"):
        ZeusPolicy().decide(context())
    single = replace(RATE, candidates=("0.05",))
    assert ZeusPolicy().decide(context((), (single,))).parameters == (("learning_rate", "0.05"),)
