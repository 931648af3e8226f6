"""Policy `thompsonSampling`, the default: joint samples propose trials, and their value of information chooses.

Sources: Thompson (1933) for the samples; Frazier, Powell and Dayanik (2009) for the value of information
(`trial_value`). docs/internals/bandit.md has the five lines of a decision, the equations and measurements.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from wattloop.energy.cost import CostModel
from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.cost_inputs import MIN_REACH_PROBABILITY, ONE_EPOCH, DecisionInputs
from wattloop_planner.bandit.cost_posterior import cost_posterior
from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET, latest_was_stopped
from wattloop_planner.bandit.first_attempts import first_decision
from wattloop_planner.bandit.gaussian_process import Flags, Indices
from wattloop_planner.bandit.kernel import combinations, octaves, parameter_neighbours
from wattloop_planner.bandit.policy import Arm, ChoiceKind, Decision, DecisionContext, PartialObservation
from wattloop_planner.bandit.posterior_cache import PosteriorCache
from wattloop_planner.bandit.trial_value import RunningTrial, knowledge_gain
from wattloop_planner.observations import Outcome

# Trials in one recurrence that may be stopped after their first epoch.
MAX_PROBES = 3
ROUNDING = 1e-6
# Expected saving over all remaining recurrences below which a trial is not considered, in incumbent runs.
MIN_SAVING = 0.01
# Probability that an untried arm does not reach the target.
FAILURE_PROBABILITY = 0.08
# Maximum distance of a trial from the tried arms, unless the expected cost is lower there.
REACH_OCTAVES = 1.0
# Trials are considered in every n-th recurrence; n grows by one with this many runs of a regime.
RUNS_PER_STRIDE = 40


@dataclass(frozen=True)
class ThompsonSamplingPolicy:
    """Chooses a trial by samples of the posterior and its value of information.

    Attributes:
        window: Number of most recent observations, of all arms together, that are used; 0: all, with
            change detection.
        max_cost_ratio: Upper bound of the cost of an attempt, as a multiple of the incumbent's expected cost.
            Infinity: only trials have a stopping cost.
        describe_arms: Whether decisions include the estimate of each arm.
        samples: Number of joint samples that propose trials.
        horizon: Number of future recurrences over which the first trial must pay; bounded by the number
            of remaining recurrences, if that is known.
        horizon_growth: Growth of the horizon per recurrence: a job that has run for long is likely to
            run for long.
    """

    window: int = 0
    max_cost_ratio: float = math.inf
    describe_arms: bool = True
    samples: int = 9
    horizon: float = 8.0
    horizon_growth: float = 3.0
    _cache: PosteriorCache = field(default_factory=PosteriorCache, compare=False, repr=False)
    _reviewed: list[DecisionInputs] = field(default_factory=list, compare=False, repr=False)

    def decide(self, context: DecisionContext) -> Decision:
        """The policy's choice; before an arm is known to reach the target, `first_decision`.

        Raises:
            NoFeasibleArmError: Every arm crashed too often in a row.
        """
        inputs = self._decision_inputs(context)
        if inputs is None:
            posterior = self._cache.posterior(context, self.window)
            return first_decision(context, posterior, self._cache.feasible_arms(context))
        return self._choose(inputs)

    def _choose(self, inputs: DecisionInputs) -> Decision:
        """A trial if it is worth its cost, otherwise the configuration of lowest expected cost."""
        trial = self._trial(inputs) if _considers_trials(inputs) else None
        return self._known(inputs) if trial is None else trial

    def review(self, context: DecisionContext, decision: Decision, partial: PartialObservation) -> float | None:
        """Stop a trial if continuing costs more than it is worth, or if another trial is worth more.

        See `ReviewingPolicy.review`.
        """
        if decision.kind is not ChoiceKind.TRIAL:
            return self._reviewed_bound(context, decision, partial)
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

    def _reviewed_bound(
        self, context: DecisionContext, decision: Decision, partial: PartialObservation
    ) -> float | None:
        """The upper bound of the cost of an attempt, once it has shown what its start cost.

        A start that costs more than expected would cost as much again after a stop. So it does not count.
        """
        if decision.stop_cost_joules is None:
            return None
        epoch_costs = self._cache.posterior(context, self.window).epoch_costs
        arm = context.space.arm(partial.batch_size, partial.parameters)
        parts = epoch_costs.parts(arm, partial, context.gpu_model)
        excess = parts.start_up_joules - float(epoch_costs.start_ups.expected(context.gpu_model).typical[arm])
        return decision.stop_cost_joules + max(excess, 0.0)

    def _decision_inputs(
        self, context: DecisionContext, partial: PartialObservation | None = None
    ) -> DecisionInputs | None:
        """The inputs of a decision; None while no arm is known to reach the target.

        Those of the last review are kept: a later epoch of the attempt mostly shows nothing new of its epoch cost.
        """
        posterior = self._cache.posterior(context, self.window)
        shown = None if partial is None else posterior.epoch_costs.shown_by(partial, context.gpu_model)
        for inputs in self._reviewed:
            if shown == inputs.shown and context is inputs.context and posterior is inputs.posterior:
                return inputs
        feasible = self._cache.feasible_arms(context)
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
        for arm in _candidates(inputs).tolist():
            saving = horizon * knowledge_gain(cost, inputs.incumbent, arm, inputs.offered)
            if saving >= MIN_SAVING:
                values[arm], stops[arm] = self._trial_value(inputs, arm, saving)
        return values, stops

    def _trial_value(self, inputs: DecisionInputs, arm: int, saving: float) -> tuple[float, float]:
        """Net value of a trial of an arm that saves something, and its stopping cost."""
        cost, trial = inputs.cost, self._trial_of(inputs, arm, paid=0.0)
        profiling = 0.0
        if not cost.measured[arm]:
            # The cost of profiling the first epoch, in incumbent runs.
            log_ratio = float(cost.log_epoch_cost[arm]) - float(cost.log_expected[inputs.incumbent])
            profiling = inputs.posterior.epoch_costs.profiling_overhead * math.exp(min(log_ratio, 60.0))
        value = saving - (trial.remaining - 1) - profiling - float(cost.start_up_risk_joules[arm]) / inputs.unit_joules
        if not cost.measured[arm]:
            value += trial.probe_option()
        return value, min(trial.stop + profiling, trial.max_stop)

    def _trial_of(self, inputs: DecisionInputs, arm: int, paid: float) -> RunningTrial:
        """A trial of an arm that has cost this much."""
        max_stop = math.inf
        if not math.isinf(self.max_cost_ratio):
            # Of the whole cost of an attempt, its epochs have this.
            max_stop = (self.max_cost_ratio * inputs.incumbent_joules - inputs.start_up_joules) / inputs.unit_joules
        return RunningTrial(
            cost=inputs.cost,
            incumbent=inputs.incumbent,
            arm=arm,
            paid=paid,
            failing=(0.2 if inputs.posterior.ever_reached[arm] > 0 else 1.0) * FAILURE_PROBABILITY,
            horizon=self._horizon(inputs.context),
            max_stop=max_stop,
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
            return f"crashed {CRASH_BUDGET} times in a row"
        if inputs.cost.reach_probability[arm] < MIN_REACH_PROBABILITY:
            return f"not expected to reach the target within {inputs.context.max_epochs} epochs"
        return ""


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


def _candidates(inputs: DecisionInputs) -> Indices:
    """Arms that may be tried: near the arms that ran, or cheaper than the incumbent, and not in flight."""
    cost = inputs.cost
    near = _near_arms(inputs.context.space, (inputs.posterior.ever_run > 0).tobytes()).copy()
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
def _near_arms(space: ConfigurationSpace, flags: bytes) -> Flags:
    """Arms within one step, in one knob, of an arm that ran; kept, because a new arm rarely runs.

    Args:
        space: The arms.
        flags: Whether each arm ran, as the bytes of an array of bool.
    """
    ran, sizes = np.frombuffer(flags, dtype=np.bool_), octaves(space)
    near: Flags = np.array(parameter_neighbours(space)[ran].any(axis=0))
    for arms in combinations(space):
        (found,) = ran[arms].nonzero()
        if found.size:
            first, last, own = int(found[0]), int(found[-1]), sizes[arms]
            near[arms] |= (own >= own[first] - REACH_OCTAVES - 1e-9) & (own <= own[last] + REACH_OCTAVES + 1e-9)
            near[arms[max(first - 1, 0)]] = near[arms[min(last + 1, len(arms) - 1)]] = True
    near.setflags(write=False)
    return near
