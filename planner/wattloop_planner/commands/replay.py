"""`wattloop replay`: the decisions of a policy on a given history."""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wattloop.files.atomic_write import open_atomic
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.named_policies import policy_named
from wattloop_planner.bandit.policy import (
    ChoiceKind,
    Decision,
    DecisionContext,
    NoFeasibleArmError,
    Policy,
    decision_seed,
)
from wattloop_planner.bandit.zeus_policy import MIN_OBSERVATIONS, NINETY_PERCENT, ZeusPolicy
from wattloop_planner.command_line.replay import batch_sizes_of, parameters_of
from wattloop_planner.observations import PARAMETER_PREFIX, Observation, Outcome
from wattloop_planner.plots.posterior_figure import PosteriorPanel, write_posterior_plot
from wattloop_planner.simulation.replayed_history import read_replayed_history

STAGES = {ChoiceKind.PRUNE: "pruning", ChoiceKind.TRIAL: "trial"}


@dataclass(frozen=True)
class Step:
    """The decision of a policy before an observation, or after the last.

    Attributes:
        step: Index of the step, from 0.
        stage: Pruning, sampling or trial.
        decided: The batch size, if it is not drawn at random.
        drawn: The configuration drawn with the seed; None if no arm is left.
        arms: Rows of the arms file.
        panel: Panel of the figure.
    """

    step: int
    stage: str
    decided: int | None
    drawn: Configuration | None
    arms: tuple[tuple[object, ...], ...]
    panel: PosteriorPanel | None = None


def run(arguments: argparse.Namespace) -> int:
    """Execute ``wattloop replay``."""
    sizes = batch_sizes_of(arguments.batch_sizes)
    policy = policy_named(arguments.policy, **({} if arguments.window is None else {"window": arguments.window}))
    parameters = parameters_of(arguments.parameter)
    history, left_out = read_replayed_history(arguments.history, sizes, parameters)
    if left_out:
        text = "attempt(s) are not replayed: their cost is not known, or their outcome says nothing about a batch size"
        sys.stderr.write(f"{arguments.history}: {left_out} {text}\n")
    context = DecisionContext(sizes, arguments.default_batch_size, 1.0, 0, 0, (), 0, parameters=parameters)
    columns = tuple(f"{PARAMETER_PREFIX}{parameter.name}" for parameter in parameters)
    steps = list(_steps(policy, context, history, arguments.seed))
    with open_atomic(arguments.output) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("step", "stage", "decided", "drawn", *columns))
        for step in steps:
            drawn, values = (None, [""] * len(columns)) if step.drawn is None else _cells(step.drawn)
            writer.writerow((step.step, step.stage, step.decided, drawn, *values))
    if arguments.arms:
        with open_atomic(arguments.arms) as stream:
            writer = csv.writer(stream, lineterminator="\n")
            spread = "precision" if isinstance(policy, ZeusPolicy) else "sd"
            writer.writerow(("step", "batch_size", "observations", "mean", spread, *columns))
            writer.writerows(row for step in steps for row in step.arms)
    if arguments.picture:
        panels = [step.panel for step in steps if step.panel is not None]
        write_posterior_plot(
            arguments.picture, f"What the policy {arguments.policy} expects before each recurrence", panels
        )
    return 0


def _steps(policy: Policy, context: DecisionContext, history: Sequence[Observation], seed: int) -> Iterator[Step]:
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


def _cells(drawn: Configuration) -> tuple[int, list[str]]:
    return drawn.batch_size, [value for _, value in drawn.parameters]


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
