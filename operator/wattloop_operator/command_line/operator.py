"""`wattloop operator`: runs the Kubernetes operator in the foreground."""

import argparse
import gc
import os
from dataclasses import replace

from wattloop import interruption
from wattloop.commands.contract import Command
from wattloop.commands.settings import add_options
from wattloop_operator.operator_settings import PREFIX, SETTINGS, settings_from


def _configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser, SETTINGS, PREFIX)


def _run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments, os.environ)
    # Imported here, so that an error in the settings appears at once. The modules are never freed, and without the
    # garbage collector, which would traverse their objects repeatedly, their import takes five sixths of the time.
    gc.disable()
    import asyncio

    from wattloop_operator.factory import Factory, connect
    from wattloop_operator.operator_main import run_operator
    from wattloop_operator.start_up_wait import await_api_server, await_database
    from wattloop_operator.telemetry.operator_logs import set_up_logs

    gc.enable()
    set_up_logs(settings.log_format, settings.log_level)
    client, transport = connect(settings)
    with client:
        readable = await_api_server(settings, transport, client.configuration.host)
        absent = tuple(name for name in settings.namespaces if name not in readable)
        settings = replace(settings, namespaces=readable)
        # Until here there is nothing to clean up, and a signal ends the process at once.
        with interruption.deferred(), await_database(settings) as store:
            interruption.raise_if_requested()
            asyncio.run(run_operator(Factory(settings, store, client, transport, absent_namespaces=absent)))
            return interruption.EXIT_INTERRUPTED if interruption.accept_request() else 0


COMMAND = Command(
    description="Starts the recurrences of all RecurringTrainingJobs of a cluster, receives the reports of their "
    "trainings, and writes costs to the status of the jobs. Several operators may run at once: one leads, the others "
    "only receive reports. Each setting is read from the first of option, environment variable and config file "
    "that has it.",
    example="  wattloop operator --context kind-dev --database sqlite:///wattloop.db\n"
    "  wattloop operator --report-bind 0.0.0.0:8080 --report-url https://wattloop-operator.wattloop.svc:8080 \\\n"
    "    --report-certificate tls.crt --report-key tls.key --report-certificate-authority ca.crt",
    configure=_configure,
    run=_run,
)
