"""`wattloop replay`: what a policy decides on a given history."""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wattloop.commands.contract import Command
from wattloop.errors import UsageError
from wattloop.files.whole import written_whole
from wattloop_planner.bandit.policies import POLICIES, policy_named
from wattloop_planner.bandit.policy import Decision, DecisionKind, NoArmLeftError, Policy, Question, decision_seed
from wattloop_planner.bandit.zeus import LEAST_OBSERVATIONS, ZeusPolicy
from wattloop_planner.observations import Observation, Outcome
from wattloop_planner.pictures.posterior_picture import BeliefPanel, write_posterior_picture
from wattloop_planner.simulation.replayed_history import read_replayed_history

STAGES = {DecisionKind.PRUNE: "pruning", DecisionKind.TRIAL: "trial"}
NINETY_PERCENT = 1.6448536269514722


@dataclass(frozen=True)
class Step:
    """What the policy decides before an observation, or after the last.

    Attributes:
        step: Its number, from 0.
        stage: Pruning, sampling or trial.
        decided: The batch size, where it is not drawn at random.
        drawn: The batch size with the seed; None where no arm is left.
        arms: Rows of the arms file.
        panel: What the picture shows of it.
    """

    step: int
    stage: str
    decided: int | None
    drawn: int | None
    arms: tuple[tuple[object, ...], ...]
    panel: BeliefPanel | None = None


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", required=True, choices=list(POLICIES), help="who decides")
    parser.add_argument("--history", required=True, metavar="FILE", help="CSV: recurrence, attempt, batch_size, "
                        "cost_joules, reached (0 or 1) [, epochs, epoch_cost_joules, outcome]")  # fmt: skip
    parser.add_argument("--batch-sizes", required=True, metavar="SIZES", help="the arms, as 8,16,32")
    parser.add_argument("--default-batch-size", required=True, type=int, metavar="SIZE", help="one of them")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn at random (default: 0)")
    parser.add_argument("--window", type=int, metavar="W", help="observations that the policy remembers")
    parser.add_argument("--output", required=True, metavar="FILE", help="CSV: a row a step; - for stdout")
    parser.add_argument("--picture", metavar="FILE", help="PNG: what is believed of each arm at each step")
    parser.add_argument("--arms", metavar="FILE", help="CSV: a row an arm that is still in, at each step")


def _run(arguments: argparse.Namespace) -> int:
    sizes = _batch_sizes(arguments.batch_sizes)
    if arguments.default_batch_size not in sizes:
        raise UsageError(
            f"--default-batch-size: found {arguments.default_batch_size}, expected one of {arguments.batch_sizes}"
        )
    if arguments.window is not None and arguments.window < 0:
        raise UsageError(f"--window: found {arguments.window}, expected a whole number of at least 0")
    policy = policy_named(arguments.policy, **({} if arguments.window is None else {"window": arguments.window}))
    history = read_replayed_history(arguments.history, sizes)
    question = Question(sizes, arguments.default_batch_size, 1.0, 0, 0, (), 0)
    steps = list(_steps(policy, question, history, arguments.seed))
    with written_whole(arguments.output) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("step", "stage", "decided", "drawn"))
        writer.writerows((step.step, step.stage, step.decided, step.drawn) for step in steps)
    if arguments.arms:
        with written_whole(arguments.arms) as stream:
            writer = csv.writer(stream, lineterminator="\n")
            spread = "precision" if isinstance(policy, ZeusPolicy) else "sd"
            writer.writerow(("step", "batch_size", "observations", "mean", spread))
            writer.writerows(row for step in steps for row in step.arms)
    if arguments.picture:
        panels = [step.panel for step in steps if step.panel is not None]
        write_posterior_picture(arguments.picture, f"policy {arguments.policy}: what is believed", panels)
    return 0


def _batch_sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = sorted(int(part) for part in text.split(","))
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1 or len(set(sizes)) < len(sizes):
        raise UsageError(f"--batch-sizes: found {text!r}, expected distinct whole numbers of at least 1, as 8,16,32")
    return tuple(sizes)


def _steps(policy: Policy, question: Question, history: Sequence[Observation], seed: int) -> Iterator[Step]:
    for step in range(len(history) + 1):
        recurrence, attempt = _place(history, step)
        asked = Question(
            question.batch_sizes,
            question.default_batch_size,
            question.eta,
            recurrence,
            attempt,
            tuple(history[:step]),
            decision_seed("replay", recurrence, attempt, seed),
        )
        try:
            decision = policy.decide(asked)
        except NoArmLeftError as error:
            sys.stderr.write(f"wattloop replay: step {step}: {error}\n")
            yield Step(step, "pruning", None, None, ())
            continue
        yield _step(policy, asked, decision, step)


def _place(history: Sequence[Observation], step: int) -> tuple[int, int]:
    """Recurrence and attempt of the decision before this observation, or after the last."""
    if step < len(history):
        return history[step].recurrence, history[step].attempt
    if not history:
        return 0, 0
    last = history[-1]
    return (last.recurrence + 1, 0) if last.outcome is Outcome.REACHED else (last.recurrence, last.attempt + 1)


def _step(policy: Policy, question: Question, decision: Decision, step: int) -> Step:
    stage = STAGES.get(decision.kind, "sampling")
    certain = decision.kind is not DecisionKind.SAMPLE
    if isinstance(policy, ZeusPolicy):
        arms = policy.state(question).arms
        rows = tuple((step, a.batch_size, a.observations, _exact(a.mean), _exact(a.precision)) for a in arms)
        fresh = [arm for arm in arms if arm.observations < LEAST_OBSERVATIONS]
        certain = certain or len(arms) == 1 or len(fresh) == 1
    else:
        arms_in = [arm for arm in decision.arms if not arm.pruned]
        certain = certain or len(arms_in) == 1
        rows = tuple(
            (step, a.batch_size, a.observations, *_log_cost(a.low_cost_joules, a.high_cost_joules)) for a in arms_in
        )
    seen = tuple((o.batch_size, o.cost_joules(1.0), o.outcome is Outcome.REACHED) for o in question.observations)
    panel = BeliefPanel(question.recurrence, decision.arms, decision.batch_size, seen)
    return Step(step, stage, decision.batch_size if certain else None, decision.batch_size, rows, panel)


def _log_cost(low: float | None, high: float | None) -> tuple[str, str]:
    """Mean and standard deviation of log cost, from the ends of its central 90 % interval."""
    if not low or not high:
        return "", ""
    return (
        _exact((math.log(low) + math.log(high)) / 2),
        _exact((math.log(high) - math.log(low)) / (2 * NINETY_PERCENT)),
    )


def _exact(value: float) -> str:
    return f"{value:.17g}"


COMMAND = Command(
    summary="what a policy decides on a given history",
    description=(
        "Asks a policy before each observation of a history, and after the last. Policy zeus is true to the published "
        "algorithm: in the sampling stage the cost of a run that did not reach the target counts as a reward, and "
        "during pruning a result of another size than the one asked for is kept but moves nothing. Where no arm is "
        "left, decided and drawn are empty."
    ),
    example=(
        "  wattloop replay --policy zeus --history history.csv --batch-sizes 8,16,32 --default-batch-size 32 \\\n"
        "    --seed 1 --output decisions.csv --arms arms.csv"
    ),
    configure=_configure,
    run=_run,
)
