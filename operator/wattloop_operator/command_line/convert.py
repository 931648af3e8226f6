"""`wattloop convert`: makes a RecurringTrainingJob's manifest of the manifest of a cron kind."""

import argparse
import sys

from wattloop.commands.contract import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a manifest of CronJob (batch/v1), RayCronJob (ray.io/v1) or CronJob (batch.volcano.sh/v1alpha1), in YAML "
        "or JSON; - reads standard input",
    )
    parser.add_argument("--output", metavar="FILE", default="-", help="output file (default: -, stdout)")


def _run(arguments: argparse.Namespace) -> int:
    from wattloop.files.atomic_write import open_atomic
    from wattloop_operator.command_line.validate import not_supported
    from wattloop_operator.conversion.conversion import convert_file

    result = convert_file(arguments.file, not_supported)
    with open_atomic(arguments.output) as stream:
        stream.write(result.text)
    sys.stderr.writelines(f"{line}\n" for line in result.messages)
    return 0


COMMAND = Command(
    description="Makes the manifest of a RecurringTrainingJob of that of a cron kind: schedule, policies, template. An "
    "argument or variable with the batch size or the epochs, such as --batch-size=64, gets Wattloop's choice instead. "
    "The job is suspended until its target is set, which no cron kind states. What could not be carried over is said "
    "on stderr and in comments of the output. Objects of other kinds are left out.",
    example="  wattloop convert nightly.yaml --output job.yaml\n"
    "  kubectl get cronjob nightly -o yaml | wattloop convert - | tee job.yaml",
    configure=_configure,
    run=_run,
)
