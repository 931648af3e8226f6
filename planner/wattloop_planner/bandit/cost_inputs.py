"""The computed inputs of a decision with a model of the cost (`posterior`, `cost_posterior`)."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wattloop_planner.bandit.cost_posterior import CostPosterior
from wattloop_planner.bandit.epoch_costs import ShownEpochCost
from wattloop_planner.bandit.gaussian_process import Flags, Indices
from wattloop_planner.bandit.policy import Arm, ChoiceKind, Decision, DecisionContext
from wattloop_planner.bandit.posterior import Posterior
from wattloop_planner.bandit.run_costs import RunCosts, attempts_of
from wattloop_planner.observations import Observation, Outcome

ONE_EPOCH = 1.001
# An arm whose attempts reach the target within the limit of epochs with a lower probability is not tried.
MIN_REACH_PROBABILITY = 0.05


@dataclass(frozen=True)
class DecisionInputs:
    """The computed inputs of a decision; vectors have shape (arms,), arms are indices.

    Attributes:
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
