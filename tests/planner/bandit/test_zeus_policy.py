import math
from collections import Counter
from collections.abc import Callable

import pytest

from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import ChoiceKind, DecisionContext, NoFeasibleArmError
from wattloop_planner.bandit.zeus_policy import GaussianArm, ZeusPolicy, gaussian_arm
from wattloop_planner.observations import Outcome

Run = tuple[int, float, Outcome]
CRASHED, EXHAUSTED, REACHED, STOPPED = Outcome.CRASHED, Outcome.EXHAUSTED, Outcome.REACHED, Outcome.STOPPED
ContextAfter = Callable[..., DecisionContext]
PRUNED: list[Run] = [(16, 10, REACHED), (8, 30, STOPPED), (32, 14, REACHED), (16, 12, REACHED), (32, 14, REACHED)]


def test_zeus_starts_with_the_default_without_a_stop(context_after: ContextAfter) -> None:
    decision = ZeusPolicy().decide(context_after((8, 16, 32), 16))
    assert (decision.batch_size, decision.kind, decision.stop_cost_joules) == (16, ChoiceKind.PRUNE, None)


def test_zeus_stops_at_twice_the_lowest_cost_of_a_run_that_reached_the_target(context_after: ContextAfter) -> None:
    decision = ZeusPolicy().decide(context_after((8, 16, 32), 16, [(16, 10, REACHED), (8, 1, STOPPED)]))
    assert (decision.batch_size, decision.stop_cost_joules) == (32, 20)


def test_an_infinite_beta_never_stops(context_after: ContextAfter) -> None:
    assert ZeusPolicy(beta=math.inf).decide(context_after((8, 16), 16, [(16, 10, REACHED)])).stop_cost_joules is None


def test_the_posterior_is_the_conjugate_one(context_after: ContextAfter) -> None:
    arms = ZeusPolicy().state(context_after((8, 16, 32), 16, PRUNED)).arms
    assert arms == (GaussianArm(16, 2, -11.0, 2.0), GaussianArm(32, 2, -14.0, math.inf))


def test_zero_variance_gives_infinite_precision_despite_rounding() -> None:
    assert gaussian_arm(8, [-0.1, -0.1, -0.1]).precision == math.inf


def test_a_failed_run_counts_with_its_cost_in_the_sampling_stage_as_published(context_after: ContextAfter) -> None:
    arms = ZeusPolicy().state(context_after((8, 16, 32), 16, [*PRUNED, (16, 20, STOPPED)])).arms
    assert arms[0] == GaussianArm(16, 3, -14.0, pytest.approx(3 / (56 / 3)))


def test_the_window_keeps_the_last_rewards_of_each_arm(context_after: ContextAfter) -> None:
    runs = [*PRUNED, (16, 14, REACHED), (16, 18, REACHED)]
    arms = ZeusPolicy(window=2).state(context_after((8, 16, 32), 16, runs)).arms
    assert arms == (GaussianArm(16, 2, -16.0, 0.5), GaussianArm(32, 2, -14.0, math.inf))


def test_a_window_of_one_draws_among_all_arms(context_after: ContextAfter) -> None:
    drawn = {
        ZeusPolicy(window=1).decide(context_after((8, 16, 32), 16, PRUNED, seed=seed)).batch_size for seed in range(20)
    }
    assert drawn == {16, 32}


def test_arms_are_drawn_with_the_probabilities_of_their_posteriors(context_after: ContextAfter) -> None:
    runs = [(16, 10, REACHED), (8, 11, REACHED), (16, 12, REACHED), (8, 15, REACHED)]
    drawn = Counter(ZeusPolicy().decide(context_after((8, 16), 16, runs, seed=seed)).batch_size for seed in range(4000))
    # Means −11 and −13, variances 1/2 and 4/2: P(sample of 16 above that of 8) = Φ(2 / √2.5).
    expected = 0.5 * (1 + math.erf(2 / math.sqrt(2.5) / math.sqrt(2)))
    assert drawn[16] / 4000 == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 4000))


def test_arms_of_infinite_precision_are_compared_by_their_means(context_after: ContextAfter) -> None:
    runs = [(16, 10, REACHED), (8, 11, REACHED), (16, 10, REACHED), (8, 11, REACHED)]
    assert {ZeusPolicy().decide(context_after((8, 16), 16, runs, seed=seed)).batch_size for seed in range(20)} == {16}


def test_while_an_exploration_is_in_flight_the_cheapest_so_far_runs(context_after: ContextAfter) -> None:
    decision = ZeusPolicy().decide(context_after((8, 16, 32), 16, PRUNED[:3], running=(Configuration(16),)))
    assert (decision.batch_size, decision.kind) == (16, ChoiceKind.INCUMBENT)
    other = ZeusPolicy().decide(context_after((8, 16, 32), 16, [(16, 10, REACHED)], running=(Configuration(8),)))
    assert (other.batch_size, other.stop_cost_joules) == (16, None)


def test_a_lost_exploration_is_requested_again(context_after: ContextAfter) -> None:
    context = context_after((8, 16, 32), 16, PRUNED[:1], recurrence=9)
    assert ZeusPolicy().decide(context).batch_size == 8


def test_three_crashes_count_as_one_failure_in_the_pruning_stage(context_after: ContextAfter) -> None:
    crash: Run = (8, 0, CRASHED)
    for crashes, next_batch_size in ((1, 8), (2, 8), (3, 32)):
        assert (
            ZeusPolicy().state(context_after((8, 16, 32), 16, [PRUNED[0], *[crash] * crashes])).next_batch_size
            == next_batch_size
        )


def test_a_crashed_arm_leaves_the_sampling_stage(context_after: ContextAfter) -> None:
    arms = ZeusPolicy().state(context_after((8, 16, 32), 16, [*PRUNED, *[(16, 0, CRASHED)] * 3])).arms
    assert [arm.batch_size for arm in arms] == [32]


def test_pruning_every_size_is_an_error_with_a_remedy(context_after: ContextAfter) -> None:
    with pytest.raises(NoFeasibleArmError, match="offer other batch sizes"):
        ZeusPolicy().decide(context_after((8, 16), 8, [(8, 50, EXHAUSTED), (16, 50, EXHAUSTED)]))


def test_the_order_of_arrival_of_late_results_does_not_matter(context_after: ContextAfter) -> None:
    context = context_after((8, 16, 32), 16, PRUNED)
    shuffled = context.observations[::-1] + context.observations[:2]
    again = DecisionContext(**{**context.__dict__, "observations": shuffled})
    assert ZeusPolicy().state(again) == ZeusPolicy().state(context)
