"""A review keeps what its next epoch cannot change, and leaves out what cannot change its result."""

from pathlib import Path

import numpy as np
import pytest

from wattloop_planner.bandit.cost_posterior import cost_posterior
from wattloop_planner.bandit.policy import Decision, DecisionContext, PartialObservation
from wattloop_planner.bandit.posterior_cache import PosteriorCache
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.bandit.trial_value import knowledge_gain
from wattloop_research.simulation.job_trace import job_trace
from wattloop_research.simulation.overlapping_recurrences import simulate
from wattloop_research.simulation.simulator import Scenario
from wattloop_research.simulation.traces import TracedWorkload, read_power_trace, read_train_trace

TRACES = Path(__file__).parents[2] / "data" / "zeus-traces"
WORKLOAD = TracedWorkload("movielens-1m", "ncf", "adam")


class Compared:
    """The policy, and a new one for each review that it is asked for."""

    def __init__(self) -> None:
        self._policy = ThompsonSamplingPolicy()
        self.contexts: list[DecisionContext] = []
        self.reviews: list[tuple[float | None, float | None]] = []

    def decide(self, context: DecisionContext) -> Decision:
        self.contexts.append(context)
        return self._policy.decide(context)

    def review(self, context: DecisionContext, decision: Decision, partial: PartialObservation) -> float | None:
        found = self._policy.review(context, decision, partial)
        self.reviews.append((found, ThompsonSamplingPolicy().review(context, decision, partial)))
        return found


@pytest.fixture(scope="module", params=[True, False], ids=["curves", "no curves"])
def compared(request: pytest.FixtureRequest) -> Compared:
    train = read_train_trace(TRACES / "summary_train.csv")
    power = read_power_trace(TRACES / "summary_power_v100.csv")
    trace = job_trace(train, power, workload=WORKLOAD, targets=(0.41,), eta=0.5)
    policy = Compared()
    scenario = Scenario("job", "V100", trace, 0.41, 100, 1024, 12, with_curves=request.param)
    for seed in range(3):
        list(simulate(scenario, policy, seed))
    return policy


def test_a_review_is_that_of_a_policy_that_keeps_nothing(compared: Compared) -> None:
    assert len(compared.reviews) > 40
    assert [pair for pair in compared.reviews if pair[0] != pair[1]] == []


def test_the_saving_after_a_trial_is_not_negative(compared: Compared) -> None:
    gains = []
    for context in compared.contexts:
        posterior = PosteriorCache().posterior(context)
        cost = cost_posterior(posterior, context.gpu_model, max_epochs=context.max_epochs)
        if cost is not None:
            arms = range(len(context.space))
            offered = np.ones(len(arms), dtype=np.bool_)
            gains += [knowledge_gain(cost, incumbent, arm, offered) for incumbent in arms for arm in arms]
    assert len(gains) > 500
    assert min(gains) >= 0
