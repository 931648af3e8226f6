"""The options by which `wattloop history` and `wattloop plot` find a job: a database, or the objects of a cluster."""

from __future__ import annotations

import argparse

from wattloop.errors import UsageError


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add JOB and the options that say where it is and what it is compared with."""
    parser.add_argument("job", metavar="JOB", help="name of the RecurringTrainingJob")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--database", metavar="URL", help="read this database: sqlite:///PATH or postgresql://USER:PASSWORD@HOST/NAME"
    )
    source.add_argument(
        "--context", metavar="NAME", help="read the cluster of this kubeconfig context (default: the current one)"
    )
    parser.add_argument("--namespace", metavar="NAME", help="the job's namespace (default: the context's)")
    parser.add_argument(
        "--uid", help="with --database: the job of this uid, where several had the name (default: last)"
    )
    parser.add_argument("--eta", type=float, help="weight of energy in the cost, 0 to 1 (default: the job's own)")
    parser.add_argument(
        "--default-batch-size", type=int, metavar="B", help="the batch size to compare with (default: the job's own)"
    )


def check_source(arguments: argparse.Namespace) -> None:
    """Check the values of these options.

    Raises:
        UsageError: A value is out of range, or an option is given without the one that it belongs to.
    """
    if arguments.eta is not None and not 0 <= arguments.eta <= 1:
        raise UsageError(f"--eta is {arguments.eta}; it weighs energy against time and must lie from 0 to 1")
    if arguments.default_batch_size is not None and arguments.default_batch_size < 1:
        raise UsageError(f"--default-batch-size is {arguments.default_batch_size}; it must be 1 or more")
    if arguments.uid is not None and arguments.database is None:
        raise UsageError("--uid chooses among the jobs of a database; give --database URL with it")
