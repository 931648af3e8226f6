"""Options of ``wattloop operator``."""

from __future__ import annotations

import argparse

from wattloop.commands.contract import Command, Deferred
from wattloop.commands.settings import add_options
from wattloop_operator.operator_settings import PREFIX, SETTINGS


def _configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser, SETTINGS, PREFIX)


COMMAND = Command(
    description="Starts the recurrences of all RecurringTrainingJobs of a cluster, receives the reports of their "
    "trainings, and writes costs to the status of the jobs. Several operators may run at once: one leads, the others "
    "only receive reports. Each setting is read from the first of option, environment variable and config file "
    "that has it.",
    example="  wattloop operator --context kind-dev --database sqlite:///wattloop.db\n"
    "  wattloop operator --report-bind 0.0.0.0:8080 --report-url https://wattloop-operator.wattloop.svc:8080 \\\n"
    "    --report-certificate tls.crt --report-key tls.key --report-certificate-authority ca.crt",
    configure=_configure,
    run=Deferred("wattloop_operator.commands.operator:run"),
)
