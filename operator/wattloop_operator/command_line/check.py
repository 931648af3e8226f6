"""`wattloop check`: runs one small recurrence in a cluster, to check that all parts of Wattloop work there."""

import argparse
import sys
import uuid
from importlib.metadata import version
from pathlib import Path

from wattloop import interruption
from wattloop.commands.contract import Command
from wattloop.errors import UsageError


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="kubeconfig of the cluster (default: the pod's service account, else the usual kubeconfig)",
    )
    parser.add_argument(
        "--context", default="", metavar="NAME", help="context of the kubeconfig (default: the current one)"
    )
    parser.add_argument(
        "-n", "--namespace", metavar="NAME", help="namespace of the job (default: the pod's own, else default)"
    )
    parser.add_argument(
        "--image",
        default=f"wattloop/operator:{version('wattloop')}",
        metavar="IMAGE",
        help="image of the training, with Python and Wattloop's client (default: %(default)s)",
    )
    parser.add_argument(
        "--image-pull-policy",
        choices=("Always", "IfNotPresent", "Never"),
        default="IfNotPresent",
        metavar="POLICY",
        help="Always, IfNotPresent (default) or Never",
    )
    parser.add_argument(
        "--image-pull-secret",
        action="append",
        default=[],
        metavar="NAME",
        help="secret to pull the image with; repeatable",
    )
    parser.add_argument(
        "--timeout-seconds", type=float, default=300.0, metavar="S", help="time limit of the check (default: 300)"
    )


def _check(arguments: argparse.Namespace) -> None:
    if not 0 < arguments.timeout_seconds < float("inf"):
        raise UsageError(f"--timeout-seconds: found {arguments.timeout_seconds:g}, expected a number above 0")


def _run(arguments: argparse.Namespace) -> int:
    from wattloop_operator.cluster.api import ClusterApi
    from wattloop_operator.cluster.api_server import ClusterAddress, own_namespace
    from wattloop_operator.cluster.api_transport import HttpTransport
    from wattloop_operator.cluster_check import ClusterCheck, check_job

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


COMMAND = Command(
    description="Creates a RecurringTrainingJob whose training has two epochs without work and needs no GPU, waits for "
    "the end of its one recurrence, and deletes the job. The check passes if the operator starts the recurrence, the "
    "training reports to the operator, and the operator records its end. Otherwise the command exits with 1 and the "
    "reason, also if the cluster's versions of Kueue, Kubeflow Trainer and JobSet do not fit together, as far as the "
    "user may list Deployments. It needs the rights to create, get and delete recurringtrainingjobs and to list "
    "trainingrecurrences in the namespace.",
    example="  wattloop check --namespace team-a\n"
    "  wattloop check --context production --image registry.example/wattloop/operator:0.1.0",
    configure=_configure,
    run=_run,
    check=_check,
)
