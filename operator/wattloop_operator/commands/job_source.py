"""Where `wattloop history` and `wattloop plot` find a job: a database, or the objects of a cluster."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from wattloop_operator.history.cluster_history import cluster_context, cluster_history
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.stored_history import JobSelector, stored_history
from wattloop_operator.store import open_store


def job_history(arguments: argparse.Namespace) -> JobHistory:
    """The history that the arguments ask for.

    Raises:
        UsageError: There is no such job.
        InputError: An object cannot be read.
        OperationError: The database or the cluster cannot be read.
    """
    if arguments.database is None:
        context = cluster_context(arguments.context)
        with context.client:
            found = cluster_history(context, arguments.job, arguments.namespace)
        overriding = {"eta": arguments.eta, "default_batch_size": arguments.default_batch_size}
        return replace(found, **{name: value for name, value in overriding.items() if value is not None})
    wanted = JobSelector(arguments.job, arguments.namespace, arguments.uid, arguments.eta, arguments.default_batch_size)
    with open_store(arguments.database, create=False) as store:
        history = stored_history(store, wanted)
    if history.default_batch_size is None:
        sys.stderr.write(
            f"{history.title}: this database holds no RecurringTrainingJob, so costs are at eta {history.eta:g} and "
            "compared with nothing; give --eta and --default-batch-size\n"
        )
    return history
