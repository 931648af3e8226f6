"""``wattloop operator``: the Kubernetes operator in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import os

from wattloop.commands.contract import Command
from wattloop.commands.settings import add_options
from wattloop_operator.cluster.connection import check_reachable
from wattloop_operator.factory import Factory, connect
from wattloop_operator.running import run_operator
from wattloop_operator.settings import PREFIX, SETTINGS, settings_from
from wattloop_operator.store import open_store
from wattloop_operator.telemetry.logs import set_up_logs


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``wattloop operator``."""
    add_options(parser, SETTINGS, PREFIX)


def run(arguments: argparse.Namespace) -> int:
    """Run the operator until it is told to end."""
    settings = settings_from(arguments, os.environ)
    set_up_logs(settings.log_format, settings.log_level)
    client, transport = connect(settings)
    with client:
        check_reachable(transport)
        with open_store(settings.database) as store:
            asyncio.run(run_operator(Factory(settings, store, client, transport)))
    return 0


COMMAND = Command(
    summary="start the Kubernetes operator in the foreground",
    description="Starts the recurrences of every RecurringTrainingJob of a cluster, takes in what trainings report, "
    "and writes what they cost into the jobs' status. Several may run at once: one acts, the others take in reports "
    "and wait. Every setting is an option, an environment variable or a key of the config file, in this order.",
    example="  wattloop operator --context kind-dev --database sqlite:///wattloop.db\n"
    "  wattloop operator --report-bind 0.0.0.0:8080 --report-url https://wattloop-operator.wattloop.svc:8080 \\\n"
    "    --report-certificate tls.crt --report-key tls.key --report-certificate-authority ca.crt",
    configure=configure,
    run=run,
)
