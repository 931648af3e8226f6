"""``wattloop operator``: the Kubernetes operator in the foreground."""

from __future__ import annotations

import argparse

from wattloop.commands.contract import Command, Deferred
from wattloop.commands.settings import add_options
from wattloop_operator.settings import PREFIX, SETTINGS


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``wattloop operator``."""
    add_options(parser, SETTINGS, PREFIX)


COMMAND = Command(
    summary="start the Kubernetes operator in the foreground",
    description="Starts the recurrences of every RecurringTrainingJob of a cluster, takes in what trainings report, "
    "and writes what they cost into the jobs' status. Several may run at once: one acts, the others take in reports "
    "and wait. Every setting is an option, an environment variable or a key of the config file, in this order.",
    example="  wattloop operator --context kind-dev --database sqlite:///wattloop.db\n"
    "  wattloop operator --report-bind 0.0.0.0:8080 --report-url https://wattloop-operator.wattloop.svc:8080 \\\n"
    "    --report-certificate tls.crt --report-key tls.key --report-certificate-authority ca.crt",
    configure=configure,
    run=Deferred("wattloop_operator.commands.operator:run"),
)
