"""`wattloop check`: one tiny recurrence in a cluster, which shows whether all of Wattloop works there."""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path

from wattloop.commands.contract import Command, Deferred
from wattloop.errors import UsageError


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="the cluster; default: the pod's own, else "
                        "the usual kubeconfig")  # fmt: skip
    parser.add_argument("--context", default="", metavar="NAME", help="the kubeconfig's context; default: current")
    parser.add_argument("--namespace", metavar="NAME", help="where the job runs; default: the pod's own, else default")
    parser.add_argument(
        "--image",
        default=f"wattloop/operator:{version('wattloop')}",
        metavar="IMAGE",
        help="an image with Python and Wattloop's client, for the training (default: %(default)s)",
    )
    parser.add_argument(
        "--image-pull-policy", choices=("Always", "IfNotPresent", "Never"), default="IfNotPresent", metavar="POLICY",
        help="Always, IfNotPresent (default) or Never",
    )  # fmt: skip
    parser.add_argument(
        "--image-pull-secret", action="append", default=[], metavar="NAME", help="a secret to pull it with; repeatable"
    )
    parser.add_argument(
        "--timeout-seconds", type=float, default=300.0, metavar="S", help="how long it may take (default: 300)"
    )


def _check(arguments: argparse.Namespace) -> None:
    if not 0 < arguments.timeout_seconds < float("inf"):
        raise UsageError(f"--timeout-seconds: found {arguments.timeout_seconds:g}, expected a number above 0")


COMMAND = Command(
    summary="run one tiny recurrence in a cluster, to see that Wattloop works there",
    description="Applies a RecurringTrainingJob whose training takes two epochs of no work and needs no GPU, waits "
    "until its one recurrence has ended, and deletes it. It ends well only if the operator has started it, the "
    "training has reported to the operator and the operator has told its end. Ends with 1 and the reason otherwise. "
    "Needs the rights to create, get and delete recurringtrainingjobs and to list trainingrecurrences there.",
    example="  wattloop check --namespace team-a\n"
    "  wattloop check --context production --image registry.example/wattloop/operator:0.1.0",
    configure=_configure,
    run=Deferred("wattloop_operator.commands.check:run"),
    check=_check,
)
