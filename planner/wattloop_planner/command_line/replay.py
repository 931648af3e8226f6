"""The part of `wattloop replay` that shows the decisions of a policy on a given history."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from wattloop.errors import UsageError
from wattloop.files.atomic_write import open_atomic
from wattloop.files.csv_table import write_csv_table
from wattloop.wire.message_fields import shown
from wattloop_planner.bandit.configuration import (
    MAX_CONFIGURATIONS,
    Configuration,
    ConfigurationSpace,
    Parameter,
)
from wattloop_planner.bandit.named_policies import POLICIES
from wattloop_planner.observations import PARAMETER_PREFIX


def add_history_arguments(parser: argparse._ArgumentGroup) -> None:
    """Add the options of a policy on a given history."""
    parser.add_argument("--policy", choices=list(POLICIES), help="policy to replay")
    parser.add_argument("--history", metavar="FILE", help="CSV: recurrence, attempt, batch_size, cost_joules, "
                        "reached (0 or 1) [, epochs, epoch_cost_joules, outcome, param:NAME]")  # fmt: skip
    parser.add_argument("--batch-sizes", metavar="SIZES", help="the arms, for example 8,16,32")
    parser.add_argument("--default-batch-size", type=int, metavar="SIZE", help="one of the arms")
    parser.add_argument("--parameter", action="append", default=[], metavar="NAME=VALUES", help="a further parameter "
                        "that the policy chooses, for example learning_rate=0.1,0.2,0.4; the first value is the "
                        "default; its column is param:NAME")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="seed of random draws (default: 0)")
    parser.add_argument("--window", type=int, metavar="W", help="number of observations that the policy uses")
    parser.add_argument("--output", metavar="FILE", help="CSV: one row per step; - for stdout. With a database: the "
                        "verdicts (default: stdout)")  # fmt: skip
    parser.add_argument("--picture", metavar="FILE", help="PNG: posterior of each arm at each step")
    parser.add_argument("--arms", metavar="FILE", help="CSV: one row per remaining arm and step")


def check_history(arguments: argparse.Namespace) -> None:
    """Check these options.

    Raises:
        UsageError: One is invalid, or does not fit another.
    """
    sizes = batch_sizes_of(arguments.batch_sizes)
    if arguments.default_batch_size not in sizes:
        raise UsageError(
            f"--default-batch-size: found {arguments.default_batch_size}, expected one of {arguments.batch_sizes}"
        )
    parameters = given_parameters(arguments.parameter)
    if arguments.policy == "zeus" and parameters:
        raise UsageError("--parameter: policy zeus chooses the batch size alone; leave it out, or use another policy")
    space = ConfigurationSpace(sizes, sizes[0], parameters)
    if space.size > MAX_CONFIGURATIONS:
        found = f"{space.size} configurations of batch size and parameters"
        raise UsageError(f"--parameter: found {found}, expected at most {MAX_CONFIGURATIONS}")
    if arguments.window is not None and arguments.window < 0:
        raise UsageError(f"--window: found {arguments.window}, expected a whole number of at least 0")


def batch_sizes_of(text: str) -> tuple[int, ...]:
    """The batch sizes in ``--batch-sizes``, in rising order.

    Raises:
        UsageError: A batch size is invalid or repeated, or there is none.
    """
    try:
        sizes = sorted(int(part) for part in text.split(","))
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1 or len(set(sizes)) < len(sizes):
        expected = "distinct whole numbers of at least 1, for example 8,16,32"
        raise UsageError(f"--batch-sizes: found {shown(text)}, expected {expected}")
    return tuple(sizes)


def given_parameters(texts: Sequence[str]) -> tuple[Parameter, ...]:
    """The parameters in ``--parameter``.

    Raises:
        UsageError: A parameter is malformed or repeated.
    """
    parameters = tuple(_parameter(text) for text in texts)
    if len({parameter.name for parameter in parameters}) < len(parameters):
        raise UsageError("--parameter: found a name twice, expected each name once")
    return parameters


def _parameter(text: str) -> Parameter:
    name, _, values = text.partition("=")
    candidates = tuple(part.strip() for part in values.split(","))
    if not name or not all(candidates):
        expected = "NAME=VALUES, for example learning_rate=0.1,0.2,0.4"
        raise UsageError(f"--parameter: found {shown(text)}, expected {expected}")
    try:
        return Parameter(name, candidates, candidates[0])
    except ValueError as error:
        raise UsageError(f"--parameter: {error}") from None


def replay_history(arguments: argparse.Namespace) -> int:
    """Write the decisions of a policy on a given history; returns the exit code."""
    from wattloop_planner.bandit.named_policies import policy_named
    from wattloop_planner.bandit.policy import DecisionContext
    from wattloop_planner.bandit.zeus_policy import ZeusPolicy
    from wattloop_planner.command_line.replayed_steps import replayed_steps
    from wattloop_planner.plots.posterior_figure import write_posterior_plot
    from wattloop_planner.simulation.replayed_history import read_replayed_history

    sizes = batch_sizes_of(arguments.batch_sizes)
    policy = policy_named(arguments.policy, **({} if arguments.window is None else {"window": arguments.window}))
    parameters = given_parameters(arguments.parameter)
    history = read_replayed_history(arguments.history, sizes, parameters)
    context = DecisionContext(sizes, arguments.default_batch_size, 1.0, 0, 0, (), 0, parameters=parameters)
    columns = tuple(f"{PARAMETER_PREFIX}{parameter.name}" for parameter in parameters)
    steps = list(replayed_steps(policy, context, history, arguments.seed))
    with open_atomic(arguments.output) as stream:
        drawn = (_cells(step.drawn, len(columns)) for step in steps)
        rows = ((step.step, step.stage, step.decided, *cells) for step, cells in zip(steps, drawn, strict=True))
        write_csv_table(stream, ("step", "stage", "decided", "drawn", *columns), rows)
    if arguments.arms:
        with open_atomic(arguments.arms) as stream:
            spread = "precision" if isinstance(policy, ZeusPolicy) else "sd"
            header = ("step", "batch_size", "observations", "mean", spread, *columns)
            write_csv_table(stream, header, (row for step in steps for row in step.arms))
    if arguments.picture:
        panels = [step.panel for step in steps if step.panel is not None]
        write_posterior_plot(
            arguments.picture, f"What the policy {arguments.policy} expects before each recurrence", panels
        )
    return 0


def _cells(drawn: Configuration | None, parameters: int) -> tuple[object, ...]:
    if drawn is None:
        return (None, *[""] * parameters)
    return (drawn.batch_size, *(value for _, value in drawn.parameters))
