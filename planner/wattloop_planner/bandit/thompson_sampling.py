"""Policy `thompsonSampling`: the arm that is cheapest in one joint sample of the posterior runs.

The model is that of policy `knowledgeGradient` (`cost_model_policy`). The value of information plays no part:
an arm runs with the probability that it is the cheapest one (Thompson 1933).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wattloop_planner.bandit.cost_model_policy import CostModelPolicy, DecisionInputs
from wattloop_planner.bandit.policy import ChoiceKind, Decision


@dataclass(frozen=True)
class ThompsonSamplingPolicy(CostModelPolicy):
    """Chooses by a joint sample of the log cost of all arms, drawn with the seed of the decision.

    Attributes:
        max_cost_ratio: Upper bound of the cost of an attempt, as a multiple of the incumbent's expected cost. A
            sample knows no stopping cost, so this one is that of the published algorithm.
    """

    max_cost_ratio: float = 2.0

    def _choose(self, inputs: DecisionInputs) -> Decision:
        arms = inputs.usable_arms(np.flatnonzero(inputs.may_run))
        sample = inputs.cost.sample(np.random.default_rng(inputs.context.seed))
        chosen = int(arms[np.argmin(sample[arms])])
        reason = (
            f"batch size {inputs.context.space.configurations[chosen]} is the cheapest in a sample of the posterior"
        )
        return inputs.decision(
            chosen, ChoiceKind.SAMPLE, reason, self._stop_cost_joules(inputs, chosen), self._arms(inputs)
        )

    def _stop_cost_joules(self, inputs: DecisionInputs, arm: int) -> float | None:
        """Upper bound of the cost of an attempt; None: unlimited.

        An arm that never reached the target has no cost from which it may have risen. So it stays limited after a
        stop.
        """
        if inputs.posterior.ever_reached[arm] or not inputs.cost.level_known or math.isinf(self.max_cost_ratio):
            return self._max_cost(inputs, arm)
        expected_joules = inputs.start_up_joules + inputs.unit_joules
        return None if inputs.stops_now > 1 else self.max_cost_ratio * expected_joules
