"""`wattloop check`: runs one small recurrence in a cluster, to check that all parts of Wattloop work there."""

from __future__ import annotations

import argparse
import sys
import uuid

from wattloop import interruption
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_server import ClusterAddress, own_namespace
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster_check import ClusterCheck, check_job


def run(arguments: argparse.Namespace) -> int:
    """Run ``wattloop check``."""
    job = check_job(
        arguments.namespace or own_namespace(),
        f"wattloop-check-{uuid.uuid4().hex[:8]}",
        arguments.image,
        pull_policy=arguments.image_pull_policy,
        pull_secrets=arguments.image_pull_secret,
    )
    # Signals are deferred so that the job is deleted also if one ends the check, for example at a pod's deadline.
    with (
        ClusterAddress(arguments.kubeconfig, arguments.context).client(connections=2) as client,
        interruption.deferred(),
    ):
        check = ClusterCheck(ClusterApi(HttpTransport(client)), show=_print)
        recurrence = check.run(job, arguments.timeout_seconds)
    usage = recurrence.status.usage
    _print(f"check passed: a training ran, reported and ended{f' in {usage.duration_seconds} s' if usage else ''}")
    return 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
