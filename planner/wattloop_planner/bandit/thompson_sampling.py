"""Policy `thompsonSampling`, the default: joint samples propose trials, and their value of information chooses.

Once an arm is known to reach the target, an attempt is decided in five lines:

1. A trial of each arm near those that ran is worth its expected saving in the remaining recurrences less its cost.
2. Nine joint samples of what each arm costs are drawn from the posterior, with the seed of the decision.
3. Each sample names the arm that is cheapest in it, of the arms whose trials are worth more than they cost.
4. Of the arms named, the one whose trial is worth most runs.
5. Where no trial is worth its cost, the known arm of lowest expected cost runs; beside a running attempt, the one that
   is cheapest in a joint sample.

Sources: Thompson (1933) for the samples; Frazier, Powell and Dayanik (2009) for the value of information
(`trial_value`). docs/internals/bandit.md has the equations and measurements.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wattloop.energy.cost import CostModel
from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.cost_model_policy import ONE_EPOCH, CostModelPolicy, DecisionInputs
from wattloop_planner.bandit.gaussian_process import Flags, Indices
from wattloop_planner.bandit.kernel import combinations, octaves, parameter_neighbours
from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext, PartialObservation
from wattloop_planner.bandit.trial_value import RunningTrial, knowledge_gain
from wattloop_planner.observations import Outcome

# Trials in one recurrence that may be stopped after their first epoch.
MAX_PROBES = 3
ROUNDING = 1e-6
# Expected saving over all remaining recurrences below which a trial is not considered, in incumbent runs.
MIN_SAVING = 0.01
# Trials are considered in every n-th recurrence; n grows by one with this many runs of a regime.
RUNS_PER_STRIDE = 40


@dataclass(frozen=True)
class ThompsonSamplingPolicy(CostModelPolicy):
    """Chooses a trial by samples of the posterior and its value of information.

    Attributes:
        samples: Number of joint samples that propose trials.
        horizon: Number of future recurrences over which the first trial must pay; bounded by the number
            of remaining recurrences, if that is known.
        horizon_growth: Growth of the horizon per recurrence: a job that has run for long is likely to
            run for long.
        failure_probability: Probability that an untried arm does not reach the target.
        reach_octaves: Maximum distance of a trial from the tried arms, unless the expected cost is lower
            there.
        max_cost_ratio: See `CostModelPolicy`. Infinity: only trials have a stopping cost.
    """

    samples: int = 9
    horizon: float = 8.0
    horizon_growth: float = 3.0
    failure_probability: float = 0.08
    reach_octaves: float = 1.0

    def _choose(self, inputs: DecisionInputs) -> Decision:
        """A trial if it is worth its cost, otherwise the configuration of lowest expected cost."""
        trial = self._trial(inputs) if _considers_trials(inputs) else None
        return self._known(inputs) if trial is None else trial

    def review(self, context: DecisionContext, decision: Decision, partial: PartialObservation) -> float | None:
        """Stop a trial if continuing costs more than it is worth, or if another trial is worth more.

        See `ReviewingPolicy.review`.
        """
        if decision.kind is not ChoiceKind.TRIAL:
            return super().review(context, decision, partial)
        inputs = self._decision_inputs(context, partial)
        if inputs is None:
            return decision.stop_cost_joules
        cost, arm = inputs.cost, context.space.arm(partial.batch_size, partial.parameters)
        unit = inputs.unit_joules
        model = CostModel(context.eta, partial.max_power_watts)
        # As the expected costs: with the part of the arm's start that other arms do not pay, as it is expected.
        parts = inputs.posterior.epoch_costs.parts(arm, partial, context.gpu_model)
        start_up_joules = parts.start_up_joules - float(cost.own_start_up_joules[arm])
        paid = model.cost_joules(partial.energy_joules, partial.time_seconds) - start_up_joules
        attempt = inputs.posterior.attempt_epochs(arm, partial.epochs, partial.curve)
        running = self._trial_of(inputs, arm, paid / unit)
        stop, needed = running.stop, 0.0
        if parts.is_surprising:
            # The next epoch shows whether the start or the epochs cost more than expected.
            stop = max(stop, paid / unit * (1 + 1 / partial.epochs))
        elif partial.epochs <= ONE_EPOCH:
            if cost.log_expected[arm] > cost.log_expected[inputs.incumbent]:
                values, _ = self._trial_values(inputs)
                values[arm] = -math.inf
                needed = max(0.0, max(values) - inputs.start_up)
        elif attempt is None:
            return start_up_joules + stop * unit
        continues = running.is_worth(needed, attempt, partial.epochs, inputs.offered)
        return start_up_joules + (stop * unit if continues else paid)

    def _trial(self, inputs: DecisionInputs) -> Decision | None:
        values, stops = self._trial_values(inputs)
        proposals = self._proposals(inputs, np.flatnonzero(np.array(values) > 0))
        if not proposals:
            return None
        # Values that differ by rounding are equal, so that the choice does not depend on the unit of energy.
        least = max(values[arm] for arm in proposals) - ROUNDING
        arm = next(arm for arm in sorted(proposals) if values[arm] >= least)
        arms = inputs.context.space.configurations
        reason = (
            f"batch size {arms[arm]} may be cheaper than {arms[inputs.incumbent]} (the cheapest trial in "
            f"{proposals[arm]} of {self.samples} samples): trying it should save {values[arm]:.2g} runs more than it "
            "costs"
        )
        stop_cost_joules = inputs.start_up_joules + stops[arm] * inputs.unit_joules
        return inputs.decision(arm, ChoiceKind.TRIAL, reason, stop_cost_joules, self._arms(inputs))

    def _proposals(self, inputs: DecisionInputs, trials: Indices) -> Mapping[int, int]:
        """Of trials that are worth their cost, those that are the cheapest in a joint sample, and in how many."""
        if not trials.size:
            return {}
        samples = inputs.cost.samples(np.random.default_rng(inputs.context.seed), self.samples)
        return Counter(trials[samples[:, trials].argmin(axis=1)].tolist())

    def _trial_values(self, inputs: DecisionInputs) -> tuple[list[float], list[float]]:
        """Net value of a trial of each arm (−∞ if not allowed) and its stopping cost, in incumbent runs."""
        cost, horizon = inputs.cost, self._horizon(inputs.context)
        values, stops = [-math.inf] * len(inputs.offered), [0.0] * len(inputs.offered)
        if not cost.level_known or horizon <= 0:
            return values, stops
        for arm in _candidates(inputs, self.reach_octaves).tolist():
            saving = horizon * knowledge_gain(cost, inputs.incumbent, arm, inputs.offered)
            if saving >= MIN_SAVING:
                values[arm], stops[arm] = self._trial_value(inputs, arm, saving)
        return values, stops

    def _trial_value(self, inputs: DecisionInputs, arm: int, saving: float) -> tuple[float, float]:
        """Net value of a trial of an arm that saves something, and its stopping cost."""
        cost, trial = inputs.cost, self._trial_of(inputs, arm, paid=0.0)
        profiling = _profiling_cost(inputs, arm)
        value = saving - (trial.remaining - 1) - profiling - float(cost.start_up_risk_joules[arm]) / inputs.unit_joules
        if not cost.measured[arm]:
            value += trial.probe_option()
        return value, min(trial.stop + profiling, trial.max_stop)

    def _trial_of(self, inputs: DecisionInputs, arm: int, paid: float) -> RunningTrial:
        """A trial of an arm that has cost this much."""
        return RunningTrial(
            cost=inputs.cost,
            incumbent=inputs.incumbent,
            arm=arm,
            paid=paid,
            failing=self._failure_probability(inputs, arm),
            horizon=self._horizon(inputs.context),
            max_stop=self._max_stop(inputs),
            retry=1 + inputs.start_up,
        )

    def _known(self, inputs: DecisionInputs) -> Decision:
        """The best known arm; with another attempt in flight, the cheapest in a joint sample of the known arms."""
        context, cost = inputs.context, inputs.cost
        configurations, usable = context.space.configurations, inputs.usable_arms(inputs.known)
        chosen = int(usable[np.argmin(cost.log_expected[usable])])
        if context.running and usable.size > 1:
            generator = np.random.default_rng(context.seed)
            draws = generator.standard_normal(len(usable))
            root = np.linalg.cholesky(cost.covariance[np.ix_(usable, usable)] + 1e-12 * np.eye(len(usable)))
            chosen = int(usable[np.argmin(cost.log_expected[usable] + root @ draws)])
            beside = f"a joint sample of the arms known, beside {len(context.running)} running"
            reason, kind = f"batch size {configurations[chosen]}: {beside}", ChoiceKind.SAMPLE
        else:
            believed = f"batch size {configurations[chosen]} is believed cheapest"
            reason, kind = f"{believed}, and no trial would pay off", ChoiceKind.INCUMBENT
        return inputs.decision(chosen, kind, reason, self._max_cost(inputs, chosen), self._arms(inputs))

    def _horizon(self, context: DecisionContext) -> float:
        """Number of future recurrences over which a trial must pay."""
        horizon = self.horizon + self.horizon_growth * context.recurrence
        remaining = context.remaining_recurrences
        return horizon if remaining is None else min(horizon, float(remaining))

    def _failure_probability(self, inputs: DecisionInputs, arm: int) -> float:
        """Probability that an arm does not reach the target."""
        return (0.2 if inputs.posterior.ever_reached[arm] > 0 else 1.0) * self.failure_probability

    def _max_stop(self, inputs: DecisionInputs) -> float:
        """Upper bound of the cost of an attempt's epochs in incumbent runs, for a bound of its whole cost."""
        if math.isinf(self.max_cost_ratio):
            return self.max_cost_ratio
        return (self.max_cost_ratio * inputs.incumbent_joules - inputs.start_up_joules) / inputs.unit_joules


def _considers_trials(inputs: DecisionInputs) -> bool:
    """Whether this attempt may be a trial.

    A first attempt may be one, less often as the runs of a regime accumulate. A later attempt may be
    one if all earlier attempts of the recurrence stopped after their first epoch, up to a limit.
    """
    if inputs.context.attempt == 0:
        stride = 1 + int(inputs.posterior.runs.sum()) // RUNS_PER_STRIDE
        return inputs.context.recurrence % stride == 0
    earlier = inputs.earlier_attempts
    return 0 < len(earlier) <= MAX_PROBES and all(
        o.outcome is Outcome.STOPPED and o.epochs <= ONE_EPOCH for o in earlier
    )


def _candidates(inputs: DecisionInputs, reach_octaves: float) -> Indices:
    """Arms that may be tried: near the arms that ran, or cheaper than the incumbent, and not in flight."""
    cost = inputs.cost
    near = _near_arms(inputs.context.space, (inputs.posterior.ever_run > 0).tobytes(), reach_octaves).copy()
    near |= cost.log_expected < cost.log_expected[inputs.incumbent]
    near &= inputs.may_run
    near[inputs.incumbent] = False
    running, ever_reached = inputs.context.arms_running, inputs.posterior.ever_reached
    near[[*running, *inputs.tried_now]] = False
    if any(not ever_reached[arm] for arm in running):
        near &= ever_reached > 0
    arms: Indices = near.nonzero()[0]
    return arms


@lru_cache(maxsize=256)
def _near_arms(space: ConfigurationSpace, flags: bytes, reach_octaves: float) -> Flags:
    """Arms within one step, in one knob, of an arm that ran; kept, because a new arm rarely runs.

    Args:
        space: The arms.
        flags: Whether each arm ran, as the bytes of an array of bool.
        reach_octaves: Length of a step in octaves of batch size.
    """
    ran, sizes = np.frombuffer(flags, dtype=np.bool_), octaves(space)
    near: Flags = np.array(parameter_neighbours(space)[ran].any(axis=0))
    for arms in combinations(space):
        (found,) = ran[arms].nonzero()
        if found.size:
            first, last, own = int(found[0]), int(found[-1]), sizes[arms]
            near[arms] |= (own >= own[first] - reach_octaves - 1e-9) & (own <= own[last] + reach_octaves + 1e-9)
            near[arms[max(first - 1, 0)]] = near[arms[min(last + 1, len(arms) - 1)]] = True
    near.setflags(write=False)
    return near


def _profiling_cost(inputs: DecisionInputs, arm: int) -> float:
    """Cost of profiling the first epoch, in incumbent runs."""
    cost = inputs.cost
    if cost.measured[arm]:
        return 0.0
    log_ratio = float(cost.log_epoch_cost[arm]) - float(cost.log_expected[inputs.incumbent])
    return inputs.posterior.epoch_costs.profiling_overhead * math.exp(min(log_ratio, 60.0))
