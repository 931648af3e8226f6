"""One job of a shared database is run from one output folder: its lock is what keeps two runs apart."""

from __future__ import annotations

import socket
from pathlib import Path

from wattloop.errors import UsageError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.store.objects import ObjectExistsError, Objects

KIND = "LocalRun"


def lock_job(objects: Objects, job: RecurringTrainingJob, output: Path) -> None:
    """Note from which folder the job is run.

    Raises:
        UsageError: It is run from another folder, which is still there.
        OperationError: The database failed.
    """
    namespace, name = job.metadata.namespace, job.metadata.name
    here = {"host": socket.gethostname(), "output": str(output)}
    try:
        objects.create(KIND, namespace, name, here)
    except ObjectExistsError:
        found = objects.get(KIND, namespace, name)
        if found is None or found.body == here:
            return
        if found.body["host"] != here["host"] or Path(found.body["output"]).exists():
            raise UsageError(
                f"job {namespace}/{name} of this database is run from {found.body['output']} on {found.body['host']}; "
                "name that folder with --output, or another database with --database"
            ) from None
        objects.replace(KIND, namespace, name, here, expected_version=found.resource_version)
