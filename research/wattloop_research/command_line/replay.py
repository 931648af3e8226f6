"""`wattloop replay`: makes the stored decisions of a job again, or shows those of a policy on a given history."""

import argparse
import sys
from collections.abc import Sequence

from wattloop.commands.contract import Command, missing_module
from wattloop.errors import OperationError, UsageError
from wattloop.files.atomic_write import open_atomic
from wattloop.files.csv_table import write_csv_table
from wattloop.wire.message_fields import shown
from wattloop_planner.bandit.configuration import (
    MAX_CONFIGURATIONS,
    ConfigurationSpace,
    Parameter,
)
from wattloop_planner.observations import PARAMETER_PREFIX
from wattloop_research.simulation.policies import POLICIES

HISTORY_OPTIONS = ("policy", "history", "batch_sizes", "default_batch_size")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "database",
        nargs="?",
        metavar="DATABASE",
        help="make each decision of this database again, and say whether it is equal: an output folder of wattloop "
        "run, a file, or postgresql://USER:PASSWORD@HOST/NAME",
    )
    parser.add_argument("--job", metavar="NAME", help="with a database: only the job of this name")
    parser.add_argument("-n", "--namespace", metavar="NAME", help="with a database: only jobs of this namespace")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="with a database (default: table)")
    _add_history_arguments(parser.add_argument_group("a policy on a given history"))


def _check(arguments: argparse.Namespace) -> None:
    given = [name for name in HISTORY_OPTIONS if getattr(arguments, name) is not None]
    if arguments.database is None:
        missing = [name for name in (*HISTORY_OPTIONS, "output") if getattr(arguments, name) is None]
        if not given:
            raise UsageError("name an output folder or a database, or give --policy and --history; see --help")
        if missing:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
            raise UsageError(f"a policy on a given history also needs {options}")
        _check_history(arguments)
    elif given:
        option = f"--{given[0].replace('_', '-')}"
        raise UsageError(f"{arguments.database}: found {option} too, expected either a database or a given history")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.database is None:
        return _replay_history(arguments)
    import json

    from wattloop.printable import printable

    try:
        from wattloop_operator.command_line.history import shown_store
        from wattloop_operator.history.replayed_decisions import replayed_decisions
    except ModuleNotFoundError as error:
        raise OperationError(f"{arguments.database}: {missing_module('wattloop_operator', error)}") from error

    with shown_store(arguments.database) as store:
        jobs = [
            (namespace, name, uid)
            for namespace, name, uid in store.decisions.jobs()
            if arguments.job in (None, name) and arguments.namespace in (None, namespace)
        ]
        if not jobs:
            which = "of this job" if arguments.job or arguments.namespace else "at all"
            raise OperationError(
                f"{store.name}: found no decisions {which}; an earlier version of Wattloop kept none, and wattloop "
                "sweep makes none"
            )
        recorded = store.observations.of_job
        found = [
            decision
            for *_, uid in jobs
            for decision in replayed_decisions(store.decisions.of_job(uid), recorded(uid), recorded)
        ]
        equal = sum(each.is_equal for each in found)
        with open_atomic(arguments.output or "-") as stream:
            if arguments.format == "json":
                body = {"decisions": [each.to_json() for each in found], "equal": equal, "total": len(found)}
                json.dump(body, stream, indent=2)
                stream.write("\n")
            else:
                for each in found:
                    name = f"{each.namespace}/{each.job}"
                    where = f"{name} recurrence {each.recurrence} attempt {each.attempt}, batch size {each.batch_size}"
                    stream.write(printable(f"{where}: {each.verdict}") + "\n")
        sys.stderr.write(f"{equal} of {len(found)} decisions are equal\n")
    return 0 if equal == len(found) else 1


def _add_history_arguments(parser: argparse._ArgumentGroup) -> None:
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


def _check_history(arguments: argparse.Namespace) -> None:
    """Check these options."""
    sizes = _batch_sizes(arguments.batch_sizes)
    if arguments.default_batch_size not in sizes:
        raise UsageError(
            f"--default-batch-size: found {arguments.default_batch_size}, expected one of {arguments.batch_sizes}"
        )
    parameters = _parameters(arguments.parameter)
    if arguments.policy == "zeus" and parameters:
        raise UsageError("--parameter: policy zeus chooses the batch size alone; leave it out, or use another policy")
    space = ConfigurationSpace(sizes, sizes[0], parameters)
    if space.size > MAX_CONFIGURATIONS:
        found = f"{space.size} configurations of batch size and parameters"
        raise UsageError(f"--parameter: found {found}, expected at most {MAX_CONFIGURATIONS}")
    if arguments.window is not None and arguments.window < 0:
        raise UsageError(f"--window: found {arguments.window}, expected a whole number of at least 0")


def _batch_sizes(text: str) -> tuple[int, ...]:
    """The batch sizes in ``--batch-sizes``, in rising order."""
    try:
        sizes = sorted(int(part) for part in text.split(","))
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1 or len(set(sizes)) < len(sizes):
        expected = "distinct whole numbers of at least 1, for example 8,16,32"
        raise UsageError(f"--batch-sizes: found {shown(text)}, expected {expected}")
    return tuple(sizes)


def _parameters(texts: Sequence[str]) -> tuple[Parameter, ...]:
    """The parameters in ``--parameter``."""
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


def _replay_history(arguments: argparse.Namespace) -> int:
    """Write the decisions of a policy on a given history; returns the exit code."""
    from wattloop_planner.bandit.policy import DecisionContext
    from wattloop_planner.bandit.zeus_policy import ZeusPolicy
    from wattloop_research.command_line.replayed_steps import replayed_steps
    from wattloop_research.policy_figures import write_posterior_plot
    from wattloop_research.simulation.policies import policy_named
    from wattloop_research.simulation.replayed_history import read_replayed_history

    sizes = _batch_sizes(arguments.batch_sizes)
    policy = policy_named(arguments.policy, **({} if arguments.window is None else {"window": arguments.window}))
    parameters = _parameters(arguments.parameter)
    history = read_replayed_history(arguments.history, sizes, parameters)
    context = DecisionContext(sizes, arguments.default_batch_size, 1.0, 0, 0, (), 0, parameters=parameters)
    columns = tuple(f"{PARAMETER_PREFIX}{parameter.name}" for parameter in parameters)
    steps = list(replayed_steps(policy, context, history, arguments.seed))
    rows: list[tuple[object, ...]] = []
    with open_atomic(arguments.output) as stream:
        for step in steps:
            drawn: tuple[object, ...] = (None, *[""] * len(columns))
            if step.drawn is not None:
                drawn = (step.drawn.batch_size, *(value for _, value in step.drawn.parameters))
            rows.append((step.step, step.stage, step.decided, *drawn))
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


COMMAND = Command(
    description=(
        "Makes each decision of a database again, from what it was made from, and says whether it is equal; the exit "
        "code is 0 if all are. Of a given history, runs a policy before each observation, and after the last. Policy "
        "zeus follows the published algorithm: in the sampling stage, the cost of a run that missed the target counts "
        "as a reward. In the pruning stage, a result of another size than the requested one is stored but does not "
        "advance the stage. If no arm is left, decided and drawn are empty."
    ),
    example=(
        "  wattloop replay wattloop-output/digits\n"
        "  wattloop replay postgresql://wattloop@db/wattloop --job digits --format json\n"
        "  wattloop replay --policy zeus --history history.csv --batch-sizes 8,16,32 --default-batch-size 32 \\\n"
        "    --seed 1 --output decisions.csv --arms arms.csv"
    ),
    configure=_configure,
    run=_run,
    check=_check,
)
