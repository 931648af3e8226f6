"""Policy `thompsonSampling`, the default: trials by their value of information, else the best known arm.

Model (`posterior`, `cost_posterior`): log cost = log epochs + log epoch cost, each smooth in the
configuration. Choice (`trial_value`): an arm is tried if its expected saving over the remaining recurrences
exceeds the cost of the trial. Otherwise the arm of lowest expected cost runs or, while another attempt is
in flight, a joint Thompson sample of the known arms. docs/bandit.md has the equations and measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from wattloop.cost import CostModel
from wattloop_planner.bandit.coordinates import combinations, octaves, parameter_neighbours
from wattloop_planner.bandit.cost_posterior import CostPosterior, cost_posterior
from wattloop_planner.bandit.epoch_limit import log_limit_factor, log_limit_of, standardised_limit
from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET, latest_was_stopped, nearest_of, tried_arms
from wattloop_planner.bandit.gaussian_process import Flags, Indices, Vector
from wattloop_planner.bandit.noise_prior import NoisePrior
from wattloop_planner.bandit.policy import Arm, Decision, DecisionContext, DecisionKind, PartialObservation
from wattloop_planner.bandit.posterior import Posterior
from wattloop_planner.bandit.posterior_cache import PosteriorCache
from wattloop_planner.bandit.priors import ChangeDetection
from wattloop_planner.bandit.trial_value import best_stop, continuing_value, knowledge_gain, probe_option
from wattloop_planner.bandit.unreached_target import closest_arm, retries_are_futile
from wattloop_planner.observations import Observation, Outcome

# Trials in one recurrence that may be stopped after their first epoch.
MAX_PROBES = 3
ONE_EPOCH = 1.001
ROUNDING = 1e-6
# Expected saving over all remaining recurrences below which a trial is not considered, in incumbent runs.
MIN_SAVING = 0.01
# An arm whose attempts reach the target within the limit of epochs with a lower probability is not tried.
MIN_REACH_PROBABILITY = 0.05
# The same bound for an untried arm while no arm is known to reach: the level of the epochs is unknown then, and the
# probabilities of all arms are low.
MIN_FIRST_REACH_PROBABILITY = 0.01
MIN_FIRST_LIMIT_DISTANCE = float(ndtri(MIN_FIRST_REACH_PROBABILITY))
# Trials are considered in every n-th recurrence; n grows by one with this many runs of a regime.
RUNS_PER_STRIDE = 40
DEFAULT_NOISE = NoisePrior()
DEFAULT_DETECTION = ChangeDetection()


@dataclass(frozen=True)
class ThompsonSamplingPolicy:
    """Chooses by value of information over a structured posterior.

    Attributes:
        window: Number of most recent observations, of all arms together, that are used; 0: all, with
            change detection.
        crash_budget: Consecutive crashes after which an arm is excluded.
        horizon: Number of future recurrences over which the first trial must pay; bounded by the number
            of remaining recurrences, if that is known.
        horizon_growth: Growth of the horizon per recurrence: a job that has run for long is likely to
            run for long.
        failure_probability: Probability that an untried arm does not reach the target.
        reach_octaves: Maximum distance of a trial from the tried arms, unless the expected cost is lower
            there.
        max_cost_ratio: Upper bound of the cost of an attempt, as a multiple of the incumbent's expected cost.
            Infinity: only trials have a stopping cost.
        noise: Prior of the spread between runs.
        detection: Settings of the change detection, used if `window` is 0.
        use_curves: Whether the curves of attempts count.
        describe_arms: Whether decisions include the estimate of each arm.
    """

    window: int = 0
    crash_budget: int = CRASH_BUDGET
    horizon: float = 8.0
    horizon_growth: float = 3.0
    failure_probability: float = 0.08
    reach_octaves: float = 1.0
    max_cost_ratio: float = math.inf
    noise: NoisePrior = DEFAULT_NOISE
    detection: ChangeDetection = DEFAULT_DETECTION
    use_curves: bool = True
    describe_arms: bool = True
    _cache: PosteriorCache = field(default_factory=PosteriorCache, compare=False, repr=False)

    def decide(self, context: DecisionContext) -> Decision:
        """A trial if it is worth its cost, otherwise the configuration of lowest expected cost.

        Raises:
            NoFeasibleArmError: Every arm crashed too often in a row.
        """
        inputs = self._decision_inputs(context)
        if inputs is None:
            return self._without_knowledge(context)
        if inputs.considers_trials:
            trial = self._trial(inputs)
            if trial is not None:
                return trial
        return self._known(inputs)

    def review(self, context: DecisionContext, decision: Decision, partial: PartialObservation) -> float | None:
        """Stop a trial if continuing costs more than it is worth, or if another trial is worth more.

        See `ReviewingPolicy.review`.
        """
        if decision.kind is not DecisionKind.TRIAL:
            return self._reviewed_max_cost(context, decision, partial)
        inputs = self._decision_inputs(context, partial)
        if inputs is None:
            return decision.stop_cost_joules
        cost, arm = inputs.cost, context.space.arm(partial.batch_size, partial.parameters)
        unit, retry = inputs.unit_joules, 1 + inputs.start_up
        model = CostModel(context.eta, partial.max_power_watts)
        # As the expected costs: with the part of the arm's start that other arms do not pay, as it is expected.
        parts = inputs.posterior.epoch_costs.parts(arm, partial, context.gpu_model)
        start_up_joules = parts.start_up_joules - float(cost.own_start_up_joules[arm])
        paid = model.cost_joules(partial.energy_joules, partial.time_seconds) - start_up_joules
        attempt = inputs.posterior.attempt_epochs(arm, partial.epochs, partial.curve)
        value, stop = continuing_value(
            cost,
            inputs.incumbent,
            arm,
            attempt,
            epochs=partial.epochs,
            paid=paid / unit,
            failing=inputs.failure_probabilities[arm],
            horizon=inputs.horizon,
            max_stop=inputs.max_stop(self.max_cost_ratio),
            retry=retry,
            offered=inputs.offered,
        )
        needed = 0.0
        if parts.is_surprising:
            # The next epoch shows whether the start or the epochs cost more than expected.
            stop = max(stop, paid / unit * (1 + 1 / partial.epochs))
        elif partial.epochs <= ONE_EPOCH:
            if cost.log_expected[arm] > cost.log_expected[inputs.incumbent]:
                values, _ = self._trial_values(inputs)
                values[arm] = -np.inf
                needed = max(0.0, float(values.max()) - inputs.start_up)
        elif attempt is None:
            return start_up_joules + stop * unit
        return start_up_joules + (paid if value < needed else stop * unit)

    def _posterior(self, context: DecisionContext) -> Posterior:
        return self._cache.posterior(context, self.window, self.noise, self.detection, use_curves=self.use_curves)

    def _decision_inputs(
        self, context: DecisionContext, partial: PartialObservation | None = None
    ) -> _DecisionInputs | None:
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
        horizon = self.horizon + self.horizon_growth * context.recurrence
        if context.remaining_recurrences is not None:
            horizon = min(horizon, float(context.remaining_recurrences))
        failing = self.failure_probability
        failure_probabilities = np.where(posterior.ever_reached > 0, 0.2 * failing, failing)
        return _DecisionInputs(context, posterior, cost, offered, known, incumbent, horizon, failure_probabilities)

    def _trial(self, inputs: _DecisionInputs) -> Decision | None:
        values, stops = self._trial_values(inputs)
        # Values that differ by rounding are equal, so that the choice does not depend on the unit of energy.
        arm = int(np.argmax(values >= values.max() - ROUNDING))
        if not values[arm] > 0:
            return None
        arms = inputs.context.space.configurations
        reason = (
            f"batch size {arms[arm]} may be cheaper than {arms[inputs.incumbent]}: "
            f"a trial is worth {values[arm]:.2g} runs more than it takes"
        )
        stop_cost_joules = inputs.start_up_joules + float(stops[arm]) * inputs.unit_joules
        return inputs.decision(arm, DecisionKind.TRIAL, reason, stop_cost_joules, self._arms(inputs))

    def _trial_values(self, inputs: _DecisionInputs) -> tuple[Vector, Vector]:
        """Net value of a trial of each arm (−∞ if not allowed) and its stopping cost, in incumbent runs."""
        cost, incumbent, horizon = inputs.cost, inputs.incumbent, inputs.horizon
        max_stop, retry = inputs.max_stop(self.max_cost_ratio), 1 + inputs.start_up
        values, stops = np.full(len(inputs.offered), -np.inf), np.zeros(len(inputs.offered))
        arms = inputs.candidates(self.reach_octaves)
        if not arms.size or not cost.level_known or horizon <= 0:
            return values, stops
        savings = horizon * knowledge_gain(cost, incumbent, arms, offered=inputs.offered)
        worth_it = savings >= MIN_SAVING
        arms, savings = arms[worth_it], savings[worth_it]
        if not arms.size:
            return values, stops
        unit = cost.log_expected[incumbent]
        spread = np.sqrt(cost.variance[arms] + cost.noise_sd**2)
        remaining, stop = best_stop(
            cost.log_cost[arms] - unit,
            spread,
            inputs.failure_probabilities[arms],
            horizon,
            np.zeros(len(arms)),
            limit=cost.limit_distance[arms],
            max_stop=max_stop,
            retry=retry,
        )
        profiling = inputs.profiling_cost(arms)
        values[arms] = savings - (remaining - 1) - profiling - cost.start_up_risk_joules[arms] / inputs.unit_joules
        stops[arms] = np.minimum(stop + profiling, max_stop)
        unmeasured = arms[~cost.measured[arms]]
        if unmeasured.size:
            failing = inputs.failure_probabilities[unmeasured]
            options = probe_option(cost, incumbent, unmeasured, failing, horizon, max_stop=max_stop, retry=retry)
            values[unmeasured] += options
        return values, stops

    def _known(self, inputs: _DecisionInputs) -> Decision:
        """The best known arm; with another attempt in flight, a joint Thompson sample of the known arms."""
        context, cost = inputs.context, inputs.cost
        configurations, arms = context.space.configurations, inputs.known
        failed = inputs.failed_now()
        usable = np.array([arm for arm in arms if arm not in failed], dtype=np.intp)
        if not usable.size:
            left = inputs.offered & (cost.reach_probability >= MIN_REACH_PROBABILITY)
            others = np.array([arm for arm in np.flatnonzero(left) if arm not in failed], dtype=np.intp)
            # A limit makes an exhausted attempt less surprising, so that the same arm may be the best retry.
            usable = np.union1d(others, arms) if cost.is_limited or not others.size else others
        chosen = int(usable[np.argmin(cost.log_expected[usable])])
        if context.running and usable.size > 1:
            generator = np.random.default_rng(context.seed)
            draws = generator.standard_normal(len(usable))
            root = np.linalg.cholesky(cost.covariance[np.ix_(usable, usable)] + 1e-12 * np.eye(len(usable)))
            chosen = int(usable[np.argmin(cost.log_expected[usable] + root @ draws)])
            beside = f"a joint sample of the arms known, beside {len(context.running)} running"
            reason, kind = f"batch size {configurations[chosen]}: {beside}", DecisionKind.SAMPLE
        else:
            reason = f"batch size {configurations[chosen]} is believed cheapest, and no trial is worth what it takes"
            kind = DecisionKind.INCUMBENT
        return inputs.decision(chosen, kind, reason, self._max_cost(inputs, chosen), self._arms(inputs))

    def _max_cost(self, inputs: _DecisionInputs, arm: int) -> float | None:
        """Upper bound of the cost of an attempt with a known arm; None: unlimited.

        A job may have become more expensive. So an attempt is unlimited if the latest one with this arm was
        stopped, or two others in this recurrence.
        """
        unlimited = math.isinf(self.max_cost_ratio) or not inputs.cost.level_known
        if unlimited or len(inputs.stopped_now()) > 1 or latest_was_stopped(inputs.context, arm):
            return None
        return self.max_cost_ratio * (inputs.start_up_joules + inputs.unit_joules)

    def _reviewed_max_cost(
        self, context: DecisionContext, decision: Decision, partial: PartialObservation
    ) -> float | None:
        """Upper bound of the cost of an attempt that is no trial, once it has shown what its start cost.

        A start that costs more than expected would cost as much again after a stop. So it does not count.
        """
        if decision.stop_cost_joules is None:
            return None
        epoch_costs = self._posterior(context).epoch_costs
        arm = context.space.arm(partial.batch_size, partial.parameters)
        parts = epoch_costs.parts(arm, partial, context.gpu_model)
        excess = parts.start_up_joules - float(epoch_costs.start_ups.expected(context.gpu_model).typical[arm])
        return decision.stop_cost_joules + max(excess, 0.0)

    def _without_knowledge(self, context: DecisionContext) -> Decision:
        """The decision while no arm is known to reach the target.

        The default runs first, then each arm that may reach the target once: in the same recurrence, or one
        in each recurrence if whole runs tell that another size hardly does. After that, each recurrence is one
        attempt with the cheapest arm of those that come closest.
        """
        space = context.space
        diverged = self._posterior(context).diverged
        left = self._cache.feasible_arms(context, self.crash_budget).arms
        left = tuple(arm for arm in left if not diverged[arm]) or left
        default = nearest_of(space, left, space.default)
        distances = self._limit_distances(context)
        tried = tried_arms(context)
        untried = [arm for arm in left if arm not in tried and distances[arm] >= MIN_FIRST_LIMIT_DISTANCE]
        limited = context.max_epochs is not None
        # Without a limit, all distances are infinite, and the nearest arm is the likeliest.
        likeliest = min(untried or left, key=lambda each: (-distances[each], space.distance(each, default), each))
        arm = default if default in untried else likeliest
        from_easier = untried and any(o.easier_target for o in context.observations)
        costs = self._log_expected_costs(context)
        by_cost = costs is not None and untried and (from_easier or (limited and default not in untried))
        if costs is not None and by_cost:
            arm = min(untried, key=lambda each: (costs[each], space.distance(each, default), each))
        closest = None if untried else closest_arm(context, left)
        if closest is not None:
            arm = closest.arm
        # A failed attempt of an only arm may be an accident until it was repeated.
        last = limited and all(each == arm for each in untried) and (len(left) > 1 or arm in tried)
        last |= retries_are_futile(context)
        chosen = space.configurations[arm]
        criterion = (
            "expected to reach the target at the lowest cost" if by_cost else "the likeliest to reach the target"
        )
        reason = f"batch size {chosen}: {criterion}; none has yet"
        if from_easier:
            reason = (
                f"batch size {chosen}: the cheapest as far as runs at an easier target show; none has reached it yet"
            )
        if not untried and limited:
            reason = f"batch size {chosen}: the likeliest to reach the target, although none is expected to; no retries"
        if closest is not None and context.target is not None:
            reason = (
                f"no batch size is expected to reach {context.target.metric} {context.target.threshold:g}; {chosen} is "
                f"the cheapest of those that come closest ({closest.metric:.4g}); no retries"
            )
        if all(o.other_target for o in context.observations):
            reason = f"nothing is known yet: the default batch size {chosen}"
        return Decision(
            chosen.batch_size, DecisionKind.DEFAULT, reason, last_attempt=last, parameters=chosen.parameters
        )

    def _log_expected_costs(self, context: DecisionContext) -> list[float] | None:
        """Log of the expected cost of each arm, retries after a limit of epochs included; None if nothing is known."""
        posterior = self._posterior(context)
        epoch_cost = posterior.epoch_costs.posterior(context.gpu_model)
        if epoch_cost is None or not posterior.has_epochs:
            return None
        mean, covariance, noise = posterior.epochs()
        variance = covariance.diagonal() + noise**2
        factor = log_limit_factor(mean, np.sqrt(variance), log_limit_of(context.max_epochs))
        log_expected = mean + epoch_cost.mean + (variance + epoch_cost.covariance.diagonal()) / 2 + factor
        # Costs that differ by rounding are equal, so that ties are resolved by the distance.
        costs: list[float] = log_expected.round(9).tolist()
        return costs

    def _limit_distances(self, context: DecisionContext) -> list[float]:
        """The limit of epochs in standard deviations above the log epochs of an attempt of each arm."""
        posterior = self._posterior(context)
        if context.max_epochs is None or not posterior.has_epochs:
            return [math.inf] * len(context.space)
        mean, covariance, noise = posterior.epochs()
        spread = np.sqrt(covariance.diagonal() + noise**2)
        # Distances that differ by rounding are equal, so that ties are resolved by the distance.
        distances: list[float] = standardised_limit(mean, spread, log_limit_of(context.max_epochs)).round(9).tolist()
        return distances

    def _arms(self, inputs: _DecisionInputs) -> tuple[Arm, ...]:
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

    def _note(self, inputs: _DecisionInputs, arm: int) -> str:
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
class _DecisionInputs:
    """The computed inputs of a decision; vectors have shape (arms,), arms are indices."""

    context: DecisionContext
    posterior: Posterior
    cost: CostPosterior
    offered: Flags
    known: Indices
    incumbent: int
    horizon: float
    failure_probabilities: Vector

    @cached_property
    def unit_joules(self) -> float:
        """Expected cost of the incumbent beyond `start_up_joules`, the unit of values and stopping costs."""
        return math.exp(float(self.cost.log_expected[self.incumbent]))

    @cached_property
    def start_up_joules(self) -> float:
        """Expected cost of the start of an attempt that no arm is below."""
        return self.cost.start_up_joules

    @property
    def start_up(self) -> float:
        """The same in incumbent runs."""
        return self.start_up_joules / self.unit_joules

    def max_stop(self, max_cost_ratio: float) -> float:
        """Upper bound of the cost of an attempt's epochs in incumbent runs, for a bound of its whole cost."""
        return max_cost_ratio + ((max_cost_ratio - 1) * self.start_up if self.start_up else 0.0)

    def candidates(self, reach_octaves: float) -> Indices:
        """Arms that may be tried: near the arms that ran, or cheaper than the incumbent, and not in flight."""
        near = self._near_arms_that_ran(reach_octaves)
        near |= self.cost.log_expected < self.cost.log_expected[self.incumbent]
        near &= self.offered & (self.cost.reach_probability >= MIN_REACH_PROBABILITY)
        near[self.incumbent] = False
        running = self.context.arms_running
        near[[*running, *self.tried_now()]] = False
        if any(not self.posterior.ever_reached[arm] for arm in running):
            near &= self.posterior.ever_reached > 0
        arms: Indices = near.nonzero()[0]
        return arms

    def _near_arms_that_ran(self, reach_octaves: float) -> Flags:
        """Arms within one step, in one knob, of an arm that ran."""
        space = self.context.space
        ran, sizes = self.posterior.ever_run > 0, octaves(space)
        near: Flags = np.array(parameter_neighbours(space)[ran].any(axis=0))
        for arms in combinations(space):
            (found,) = ran[arms].nonzero()
            if found.size:
                first, last, own = int(found[0]), int(found[-1]), sizes[arms]
                near[arms] |= (own >= own[first] - reach_octaves - 1e-9) & (own <= own[last] + reach_octaves + 1e-9)
                near[arms[max(first - 1, 0)]] = near[arms[min(last + 1, len(arms) - 1)]] = True
        return near

    def profiling_cost(self, arms: Indices) -> Vector:
        """Cost of profiling the first epoch, in incumbent runs."""
        share = self.posterior.epoch_costs.profiling_overhead
        unit = self.cost.log_expected[self.incumbent]
        logs = np.minimum(self.cost.log_epoch_cost[arms] - unit, 60.0)
        cost: Vector = np.where(self.cost.measured[arms], 0.0, share * np.exp(logs))
        return cost

    def decision(
        self, arm: int, kind: DecisionKind, reason: str, stop_cost_joules: float | None, arms: tuple[Arm, ...]
    ) -> Decision:
        """The decision to run an arm."""
        chosen = self.context.space.configurations[arm]
        return Decision(chosen.batch_size, kind, reason, stop_cost_joules, arms, parameters=chosen.parameters)

    def tried_now(self) -> set[int]:
        """Arms that this recurrence has tried."""
        return self._arms_of(self._earlier_attempts())

    def failed_now(self) -> set[int]:
        """Arms that ran all their epochs in this recurrence without reaching the target."""
        return self._arms_of([o for o in self._earlier_attempts() if o.outcome is Outcome.EXHAUSTED])

    def stopped_now(self) -> list[int | None]:
        """Arms of this recurrence's attempts that were stopped after their first epoch."""
        stopped = [o for o in self._earlier_attempts() if o.outcome is Outcome.STOPPED and o.epochs > ONE_EPOCH]
        return [self.context.arm_of(o) for o in stopped]

    def _arms_of(self, attempts: list[Observation]) -> set[int]:
        return {arm for o in attempts if (arm := self.context.arm_of(o)) is not None}

    @property
    def considers_trials(self) -> bool:
        """Whether this attempt may be a trial.

        A first attempt may be one, less often as the runs of a regime accumulate. A later attempt may be
        one if all earlier attempts of the recurrence stopped after their first epoch, up to a limit.
        """
        if self.context.attempt == 0:
            stride = 1 + int(self.posterior.runs.sum()) // RUNS_PER_STRIDE
            return self.context.recurrence % stride == 0
        earlier = self._earlier_attempts()
        return 0 < len(earlier) <= MAX_PROBES and all(
            o.outcome is Outcome.STOPPED and o.epochs <= ONE_EPOCH for o in earlier
        )

    def _earlier_attempts(self) -> list[Observation]:
        recurrence = self.context.recurrence
        return (
            [
                o
                for o in self.context.observations[-self.context.attempt :]
                if o.recurrence == recurrence and not o.from_other_job and not o.other_target
            ]
            if self.context.attempt
            else []
        )
