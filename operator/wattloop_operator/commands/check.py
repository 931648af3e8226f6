"""`wattloop check`: one tiny recurrence in a cluster, which shows whether all of Wattloop works there."""

from __future__ import annotations

import argparse
import sys
import uuid

from wattloop import interruption
from wattloop_operator.checking.check import Check
from wattloop_operator.checking.tiny_job import tiny_job
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.connection import ClusterAddress, own_namespace
from wattloop_operator.cluster.transport import HttpTransport


def run(arguments: argparse.Namespace) -> int:
    """Carry out ``wattloop check``."""
    job = tiny_job(
        arguments.namespace or own_namespace(),
        f"wattloop-check-{uuid.uuid4().hex[:8]}",
        arguments.image,
        pull_policy=arguments.image_pull_policy,
        pull_secrets=arguments.image_pull_secret,
    )
    # The job is deleted also where a signal ends the check, such as when a pod's time is up.
    with (
        ClusterAddress(arguments.kubeconfig, arguments.context).client(connections=2) as client,
        interruption.deferred(),
    ):
        check = Check(ClusterApi(HttpTransport(client)), tell=_print)
        recurrence = check.carry_out(job, arguments.timeout_seconds)
    usage = recurrence.status.usage
    _print(f"all works: a training ran, reported and ended{f' in {usage.duration_seconds} s' if usage else ''}")
    return 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
