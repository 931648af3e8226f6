"""`wattloop replay`: makes the stored decisions of a job again, or shows those of a policy on a given history."""

from __future__ import annotations

import argparse
import sys

from wattloop.commands.contract import Command
from wattloop.errors import OperationError, UsageError
from wattloop_operator.command_line.history import shown_store
from wattloop_planner.command_line.replay import add_history_arguments, check_history, replay_history

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
    add_history_arguments(parser.add_argument_group("a policy on a given history"))


def _check(arguments: argparse.Namespace) -> None:
    given = [name for name in HISTORY_OPTIONS if getattr(arguments, name) is not None]
    if arguments.database is None:
        missing = [name for name in (*HISTORY_OPTIONS, "output") if getattr(arguments, name) is None]
        if not given:
            raise UsageError("name an output folder or a database, or give --policy and --history; see --help")
        if missing:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
            raise UsageError(f"a policy on a given history also needs {options}")
        check_history(arguments)
    elif given:
        option = f"--{given[0].replace('_', '-')}"
        raise UsageError(f"{arguments.database}: found {option} too, expected either a database or a given history")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.database is None:
        return replay_history(arguments)
    import json

    from wattloop.files.atomic_write import open_atomic
    from wattloop.printable import printable
    from wattloop_operator.history.replayed_decisions import replayed_decisions

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
