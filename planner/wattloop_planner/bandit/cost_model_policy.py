"""What the policies with a model of the cost have in common: the model, and all but the choice of an arm.

Model (`posterior`, `cost_posterior`): log cost = log epochs + log epoch cost, each smooth in the
configuration. docs/bandit.md has the equations and measurements.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from wattloop_planner.bandit.cost_posterior import cost_posterior
from wattloop_planner.bandit.decision_inputs import MIN_REACH_PROBABILITY, DecisionInputs
from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET, latest_was_stopped
from wattloop_planner.bandit.first_attempts import first_decision
from wattloop_planner.bandit.noise_prior import NoisePrior
from wattloop_planner.bandit.policy import Arm, Decision, DecisionContext, PartialObservation
from wattloop_planner.bandit.posterior import Posterior
from wattloop_planner.bandit.posterior_cache import PosteriorCache
from wattloop_planner.bandit.priors import ChangeDetection

DEFAULT_NOISE = NoisePrior()
DEFAULT_DETECTION = ChangeDetection()


@dataclass(frozen=True)
class CostModelPolicy(ABC):
    """A policy that models the cost of each arm; a subclass says how it chooses one.

    Attributes:
        window: Number of most recent observations, of all arms together, that are used; 0: all, with
            change detection.
        crash_budget: Consecutive crashes after which an arm is excluded.
        max_cost_ratio: Upper bound of the cost of an attempt, as a multiple of the incumbent's expected cost.
            Infinity: no attempt has one.
        noise: Prior of the spread between runs.
        detection: Settings of the change detection, used if `window` is 0.
        use_curves: Whether the curves of attempts count.
        describe_arms: Whether decisions include the estimate of each arm.
    """

    window: int = 0
    crash_budget: int = CRASH_BUDGET
    max_cost_ratio: float = math.inf
    noise: NoisePrior = DEFAULT_NOISE
    detection: ChangeDetection = DEFAULT_DETECTION
    use_curves: bool = True
    describe_arms: bool = True
    _cache: PosteriorCache = field(default_factory=PosteriorCache, compare=False, repr=False)

    def decide(self, context: DecisionContext) -> Decision:
        """The policy's choice; before an arm is known to reach the target, `first_decision`.

        Raises:
            NoFeasibleArmError: Every arm crashed too often in a row.
        """
        inputs = self._decision_inputs(context)
        if inputs is None:
            feasible = self._cache.feasible_arms(context, self.crash_budget).arms
            return first_decision(context, self._posterior(context), feasible)
        return self._choose(inputs)

    def review(self, context: DecisionContext, decision: Decision, partial: PartialObservation) -> float | None:
        """The upper bound of the cost of an attempt, once it has shown what its start cost.

        A start that costs more than expected would cost as much again after a stop. So it does not count.
        See `ReviewingPolicy.review`.
        """
        if decision.stop_cost_joules is None:
            return None
        epoch_costs = self._posterior(context).epoch_costs
        arm = context.space.arm(partial.batch_size, partial.parameters)
        parts = epoch_costs.parts(arm, partial, context.gpu_model)
        excess = parts.start_up_joules - float(epoch_costs.start_ups.expected(context.gpu_model).typical[arm])
        return decision.stop_cost_joules + max(excess, 0.0)

    @abstractmethod
    def _choose(self, inputs: DecisionInputs) -> Decision:
        """The choice once an arm is known to reach the target."""

    def _posterior(self, context: DecisionContext) -> Posterior:
        return self._cache.posterior(context, self.window, self.noise, self.detection, use_curves=self.use_curves)

    def _decision_inputs(
        self, context: DecisionContext, partial: PartialObservation | None = None
    ) -> DecisionInputs | None:
        """The inputs of a decision; None while no arm is known to reach the target."""
        posterior = self._posterior(context)
        offered = np.zeros(len(context.space), dtype=np.bool_)
        offered[list(self._cache.feasible_arms(context, self.crash_budget).arms)] = True
        offered &= posterior.diverged == 0
        (known,) = (offered & (posterior.ever_reached > 0)).nonzero()
        cost = None
        if known.size:
            cost = cost_posterior(posterior, context.gpu_model, partial, max_epochs=context.max_epochs)
        if cost is None:
            return None
        known = known[cost.reach_probability[known] >= MIN_REACH_PROBABILITY]
        if not known.size:
            return None
        incumbent = int(known[np.argmin(cost.log_expected[known])])
        return DecisionInputs(context, posterior, cost, offered, known, incumbent)

    def _max_cost(self, inputs: DecisionInputs, arm: int) -> float | None:
        """Upper bound of the cost of an attempt with a known arm; None: unlimited.

        A job may have become more expensive. So an attempt is unlimited if the latest one with this arm was
        stopped, or two others in this recurrence.
        """
        unlimited = math.isinf(self.max_cost_ratio) or not inputs.cost.level_known
        if unlimited or inputs.stops_now > 1 or latest_was_stopped(inputs.context, arm):
            return None
        return self.max_cost_ratio * (inputs.start_up_joules + inputs.unit_joules)

    def _arms(self, inputs: DecisionInputs) -> tuple[Arm, ...]:
        if not self.describe_arms:
            return ()
        cost, posterior = inputs.cost, inputs.posterior
        low, high = cost.interval()
        mean = np.exp(np.clip(cost.log_expected, -600.0, 600.0))
        mean, low, high = (costs + inputs.start_up_joules for costs in (mean, low, high))
        known = cost.level_known & (cost.reach_probability >= MIN_REACH_PROBABILITY)
        return tuple(
            Arm(
                batch_size=arm.batch_size,
                observations=int(posterior.runs[i]),
                pruned=bool(not inputs.offered[i] or cost.reach_probability[i] < MIN_REACH_PROBABILITY),
                mean_cost_joules=float(mean[i]) if known[i] else None,
                low_cost_joules=float(low[i]) if known[i] else None,
                high_cost_joules=float(high[i]) if known[i] else None,
                note=self._note(inputs, i),
                parameters=arm.parameters,
            )
            for i, arm in enumerate(posterior.space.configurations)
        )

    def _note(self, inputs: DecisionInputs, arm: int) -> str:
        if arm in inputs.context.arms_excluded:
            return "its final metric falls short of the default's"
        if inputs.posterior.diverged[arm]:
            return "diverged"
        if not inputs.offered[arm]:
            return f"crashed {self.crash_budget} times in a row"
        if inputs.cost.reach_probability[arm] < MIN_REACH_PROBABILITY:
            return f"not expected to reach the target within {inputs.context.max_epochs} epochs"
        return ""
