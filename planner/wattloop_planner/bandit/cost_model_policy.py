"""What the policies with a model of the cost have in common: the model, and all but the choice of an arm.

Model (`posterior`, `cost_posterior`): log cost = log epochs + log epoch cost, each smooth in the
configuration. docs/internals/bandit.md has the equations and measurements.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from wattloop_planner.bandit.change_detection import ChangeDetection
from wattloop_planner.bandit.cost_posterior import CostPosterior, cost_posterior
from wattloop_planner.bandit.epoch_costs import ShownEpochCost
from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET, latest_was_stopped
from wattloop_planner.bandit.first_attempts import first_decision
from wattloop_planner.bandit.gaussian_process import Flags, Indices
from wattloop_planner.bandit.policy import Arm, ChoiceKind, Decision, DecisionContext, PartialObservation
from wattloop_planner.bandit.posterior import Posterior
from wattloop_planner.bandit.posterior_cache import PosteriorCache
from wattloop_planner.bandit.priors import NoisePrior
from wattloop_planner.bandit.run_costs import RunCosts, attempts_of
from wattloop_planner.observations import Observation, Outcome

DEFAULT_NOISE = NoisePrior()
DEFAULT_DETECTION = ChangeDetection()
ONE_EPOCH = 1.001
# An arm whose attempts reach the target within the limit of epochs with a lower probability is not tried.
MIN_REACH_PROBABILITY = 0.05


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
    _reviewed: list[DecisionInputs] = field(default_factory=list, compare=False, repr=False)

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
        """The inputs of a decision; None while no arm is known to reach the target.

        Those of the last review are kept: a later epoch of the attempt mostly shows nothing new of its epoch cost.
        """
        posterior = self._posterior(context)
        shown = None if partial is None else posterior.epoch_costs.shown_by(partial, context.gpu_model)
        for inputs in self._reviewed:
            if shown == inputs.shown and context is inputs.context and posterior is inputs.posterior:
                return inputs
        feasible = self._cache.feasible_arms(context, self.crash_budget).arms
        cost = cost_posterior(posterior, context.gpu_model, shown, max_epochs=context.max_epochs)
        if cost is None:
            return None
        offered: Flags = posterior.diverged == 0
        if len(feasible) < len(offered):
            offered &= np.isin(np.arange(len(offered)), feasible)
        reaches = cost.reach_probability >= MIN_REACH_PROBABILITY
        (known,) = (offered & (posterior.ever_reached > 0) & reaches).nonzero()
        if not known.size:
            return None
        incumbent = int(known[cost.log_expected[known].argmin()])
        inputs = DecisionInputs(context, posterior, cost, offered, known, incumbent, shown)
        self._reviewed[:] = [inputs]
        return inputs

    def _max_cost(self, inputs: DecisionInputs, arm: int) -> float | None:
        """Upper bound of the cost of an attempt with a known arm; None: unlimited.

        A job may have become more expensive. So an attempt is unlimited if the latest one with this arm was
        stopped, or two others in this recurrence.
        """
        unlimited = math.isinf(self.max_cost_ratio) or not inputs.cost.level_known
        if unlimited or inputs.stops_now > 1 or latest_was_stopped(inputs.context, arm):
            return None
        return self.max_cost_ratio * inputs.incumbent_joules

    def _arms(self, inputs: DecisionInputs) -> tuple[Arm, ...]:
        if not self.describe_arms:
            return ()
        cost, posterior = inputs.cost, inputs.posterior
        known = cost.level_known & (cost.reach_probability >= MIN_REACH_PROBABILITY)
        costs = inputs.run_costs
        start_half_width = costs.start_half_width(inputs.context.gpu_model)
        expected = np.column_stack(cost.estimates(costs.noise.half_width(1.0), start_half_width))
        sds = np.sqrt(cost.variance)
        arms = []
        for i, each in enumerate(posterior.space.configurations):
            pruned = bool(not inputs.offered[i] or cost.reach_probability[i] < MIN_REACH_PROBABILITY)
            runs, note = int(posterior.runs[i]), self._note(inputs, i)
            arm = Arm(each.batch_size, runs, pruned, note=note, parameters=each.parameters)
            if known[i]:
                mean, low, high = expected[i].tolist()
                arm = replace(arm, mean_cost_joules=mean, low_cost_joules=low, high_cost_joules=high)
                arm = replace(arm, mean_log_sd=float(sds[i]))
                arm = arm.with_cost(costs.of(i, inputs.context.gpu_model) if runs else None)
            arms.append(arm)
        return tuple(arms)

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


@dataclass(frozen=True)
class DecisionInputs:
    """The computed inputs of a decision; vectors have shape (arms,), arms are indices.

    Attributes:
        context: The context of the decision.
        posterior: The posterior of its observations.
        cost: The posterior of the cost.
        offered: Arms that are not excluded, did not crash too often and did not diverge.
        known: Those that have reached the target and are expected to reach it again.
        incumbent: The one of lowest expected cost among these.
        shown: What a running attempt shows of its epoch cost; None without one.
    """

    context: DecisionContext
    posterior: Posterior
    cost: CostPosterior
    offered: Flags
    known: Indices
    incumbent: int
    shown: ShownEpochCost | None = None

    @cached_property
    def unit_joules(self) -> float:
        """Expected cost of the incumbent beyond `start_up_joules`, the unit of values and stopping costs."""
        return math.exp(float(self.cost.log_expected[self.incumbent]))

    @property
    def start_up_joules(self) -> float:
        """Expected cost of the start of an attempt that no arm is below."""
        return self.cost.start_up_joules

    @property
    def start_up(self) -> float:
        """The same in incumbent runs."""
        return self.start_up_joules / self.unit_joules

    @cached_property
    def run_costs(self) -> RunCosts:
        """What the runs since the last change did cost."""
        since = max(self.posterior.changed_at, self.posterior.epoch_costs.since(self.context.gpu_model))
        attempts = attempts_of(self.context)
        recent = [each for each in attempts if (each.observation.recurrence, each.observation.attempt) >= since]
        return RunCosts(recent, self.context.eta)

    @cached_property
    def incumbent_joules(self) -> float:
        """Expected cost of a recurrence with the incumbent, as its runs did cost."""
        own = self.run_costs.of(self.incumbent, self.context.gpu_model)
        return self.start_up_joules + self.unit_joules if own is None else own.of_run.value

    @cached_property
    def may_run(self) -> Flags:
        """The arms offered that are expected to reach the target within the limit of epochs."""
        flags: Flags = self.offered & (self.cost.reach_probability >= MIN_REACH_PROBABILITY)
        return flags

    def not_failed_now(self, arms: Indices) -> Indices:
        """Those of some arms that did not run all their epochs in this recurrence in vain."""
        failed = self._arms_of([o for o in self.earlier_attempts if o.outcome is Outcome.EXHAUSTED])
        return np.array([arm for arm in arms if arm not in failed], dtype=np.intp)

    def usable_arms(self, arms: Indices) -> Indices:
        """Those of some arms that an attempt may run after the failures of this recurrence; never none."""
        left = self.not_failed_now(arms)
        if left.size:
            return left
        others = self.not_failed_now(np.flatnonzero(self.may_run))
        # A limit makes an exhausted attempt less surprising, so that the same arm may be the best retry.
        return np.union1d(others, arms) if self.cost.is_limited or not others.size else others

    @cached_property
    def tried_now(self) -> set[int]:
        """Arms that this recurrence has tried."""
        return self._arms_of(self.earlier_attempts)

    @cached_property
    def stops_now(self) -> int:
        """Number of attempts of this recurrence that were stopped after their first epoch."""
        return sum(o.outcome is Outcome.STOPPED and o.epochs > ONE_EPOCH for o in self.earlier_attempts)

    @cached_property
    def earlier_attempts(self) -> list[Observation]:
        """The earlier attempts of this recurrence."""
        if not self.context.attempt:
            return []
        latest, recurrence = self.context.observations[-self.context.attempt :], self.context.recurrence
        return [o for o in latest if o.recurrence == recurrence and not o.from_other_job and not o.other_target]

    def decision(
        self, arm: int, kind: ChoiceKind, reason: str, stop_cost_joules: float | None, arms: tuple[Arm, ...]
    ) -> Decision:
        """The decision to run an arm."""
        chosen, incumbent = (self.context.space.configurations[each] for each in (arm, self.incumbent))
        parameters = chosen.parameters
        return Decision(
            chosen.batch_size, kind, reason, stop_cost_joules, arms, parameters=parameters, incumbent=incumbent
        )

    def _arms_of(self, attempts: list[Observation]) -> set[int]:
        return {arm for o in attempts if (arm := self.context.arm_of(o)) is not None}
