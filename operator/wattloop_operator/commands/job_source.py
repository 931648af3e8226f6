"""Where `wattloop history` and `wattloop plot` find a job: a database, or the objects of a cluster."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from wattloop.errors import UsageError
from wattloop_operator.pictures.cluster_history import cluster_context, cluster_history
from wattloop_operator.pictures.job_history import JobHistory
from wattloop_operator.pictures.stored_history import WantedJob, stored_history
from wattloop_operator.store import open_store


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


def job_history(arguments: argparse.Namespace) -> JobHistory:
    """The history that the arguments ask for.

    Raises:
        UsageError: An argument cannot be, or there is no such job.
        InputError: An object cannot be read.
        CannotError: The database or the cluster cannot be read.
    """
    _check(arguments)
    if arguments.database is None:
        context = cluster_context(arguments.context)
        with context.client:
            found = cluster_history(context, arguments.job, arguments.namespace)
        overriding = {"eta": arguments.eta, "default_batch_size": arguments.default_batch_size}
        return replace(found, **{name: value for name, value in overriding.items() if value is not None})
    wanted = WantedJob(arguments.job, arguments.namespace, arguments.uid, arguments.eta, arguments.default_batch_size)
    with open_store(arguments.database, create=False) as store:
        history = stored_history(store, wanted)
    if history.default_batch_size is None:
        sys.stderr.write(
            f"{history.title}: this database holds no RecurringTrainingJob, so costs are at eta {history.eta:g} and "
            "compared with nothing; give --eta and --default-batch-size\n"
        )
    return history


def _check(arguments: argparse.Namespace) -> None:
    if arguments.eta is not None and not 0 <= arguments.eta <= 1:
        raise UsageError(f"--eta is {arguments.eta}; it weighs energy against time and must lie from 0 to 1")
    if arguments.default_batch_size is not None and arguments.default_batch_size < 1:
        raise UsageError(f"--default-batch-size is {arguments.default_batch_size}; it must be 1 or more")
    if arguments.uid is not None and arguments.database is None:
        raise UsageError("--uid chooses among the jobs of a database; give --database URL with it")
