"""Options of `wattloop check`."""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path

from wattloop.commands.contract import Command, Deferred
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
        "--namespace", metavar="NAME", help="namespace of the job (default: the pod's own, else default)"
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


COMMAND = Command(
    description="Creates a RecurringTrainingJob whose training has two epochs without work and needs no GPU, waits for "
    "the end of its one recurrence, and deletes the job. The check passes if the operator starts the recurrence, the "
    "training reports to the operator, and the operator records its end. Otherwise the command exits with 1 and the "
    "reason. It needs the rights to create, get and delete recurringtrainingjobs and to list trainingrecurrences in "
    "the namespace.",
    example="  wattloop check --namespace team-a\n"
    "  wattloop check --context production --image registry.example/wattloop/operator:0.1.0",
    configure=_configure,
    run=Deferred("wattloop_operator.commands.check:run"),
    check=_check,
)
