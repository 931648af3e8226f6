"""The decisions of a policy before each observation of a history, and after the last."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import (
    NINETY_PERCENT,
    ChoiceKind,
    Decision,
    DecisionContext,
    NoFeasibleArmError,
    Policy,
    decision_seed,
)
from wattloop_planner.bandit.zeus_policy import MIN_OBSERVATIONS, ZeusPolicy
from wattloop_planner.observations import Observation, Outcome
from wattloop_research.policy_figures import PosteriorPanel

STAGES = {ChoiceKind.PRUNE: "pruning", ChoiceKind.TRIAL: "trial"}


@dataclass(frozen=True)
class Step:
    """The decision of a policy before an observation, or after the last.

    Attributes:
        step: Index of the step, from 0.
        decided: The batch size, if it is not drawn at random.
        drawn: The configuration drawn with the seed; None if no arm is left.
    """

    step: int
    stage: str
    decided: int | None
    drawn: Configuration | None
    arms: tuple[tuple[object, ...], ...]
    panel: PosteriorPanel | None = None


def replayed_steps(
    policy: Policy, context: DecisionContext, history: Sequence[Observation], seed: int
) -> Iterator[Step]:
    """Yield the step before each observation, and the one after the last."""
    for step in range(len(history) + 1):
        recurrence, attempt = _recurrence_and_attempt(history, step)
        context_at_step = replace(
            context,
            recurrence=recurrence,
            attempt=attempt,
            observations=tuple(history[:step]),
            seed=decision_seed("replay", recurrence, attempt, seed),
        )
        try:
            decision = policy.decide(context_at_step)
        except NoFeasibleArmError as error:
            sys.stderr.write(f"wattloop replay: step {step}: {error}\n")
            yield Step(step, "pruning", None, None, ())
            continue
        yield _step(policy, context_at_step, decision, step)


def _recurrence_and_attempt(history: Sequence[Observation], step: int) -> tuple[int, int]:
    """Recurrence and attempt of the decision before an observation, or after the last."""
    if step < len(history):
        return history[step].recurrence, history[step].attempt
    if not history:
        return 0, 0
    last = history[-1]
    return (last.recurrence + 1, 0) if last.outcome is Outcome.REACHED else (last.recurrence, last.attempt + 1)


def _step(policy: Policy, context: DecisionContext, decision: Decision, step: int) -> Step:
    stage = STAGES.get(decision.kind, "sampling")
    certain = decision.kind is not ChoiceKind.SAMPLE
    rows: tuple[tuple[object, ...], ...]
    if isinstance(policy, ZeusPolicy):
        arms = policy.state(context).arms
        rows = tuple((step, a.batch_size, a.observations, _exact(a.mean), _exact(a.precision)) for a in arms)
        underexplored = [arm for arm in arms if arm.observations < MIN_OBSERVATIONS]
        certain = certain or len(arms) == 1 or len(underexplored) == 1
    else:
        arms_in = [arm for arm in decision.arms if not arm.pruned]
        certain = certain or len(arms_in) == 1
        rows = tuple(
            (
                step,
                a.batch_size,
                a.observations,
                *_log_cost(a.low_cost_joules, a.high_cost_joules),
                *(value for _, value in a.parameters),
            )
            for a in arms_in
        )
    runs = tuple((o.batch_size, o.cost_joules(1.0), o.outcome is Outcome.REACHED) for o in context.observations)
    chosen = decision.configuration
    panel = PosteriorPanel(context.recurrence, decision.arms, chosen, runs)
    return Step(step, stage, decision.batch_size if certain else None, chosen, rows, panel)


def _log_cost(low: float | None, high: float | None) -> tuple[str, str]:
    """Mean and standard deviation of log cost, from the central 90 % interval."""
    if not low or not high:
        return "", ""
    return (
        _exact((math.log(low) + math.log(high)) / 2),
        _exact((math.log(high) - math.log(low)) / (2 * NINETY_PERCENT)),
    )


def _exact(value: float) -> str:
    return f"{value:.17g}"
