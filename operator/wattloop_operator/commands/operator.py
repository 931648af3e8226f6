"""``wattloop operator``: runs the Kubernetes operator in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
from dataclasses import replace

from wattloop import interruption
from wattloop_operator.operator_settings import settings_from


def run(arguments: argparse.Namespace) -> int:
    """Run ``wattloop operator`` until it is asked to end."""
    settings = settings_from(arguments, os.environ)
    # Imported here, so that an error in the settings appears at once. The modules are never freed, and without the
    # garbage collector, which would traverse their objects repeatedly, their import takes five sixths of the time.
    gc.disable()
    from wattloop_operator.factory import Factory, connect  # noqa: PLC0415
    from wattloop_operator.running import run_operator  # noqa: PLC0415
    from wattloop_operator.start_up_wait import await_api_server, await_database  # noqa: PLC0415
    from wattloop_operator.telemetry.operator_logs import set_up_logs  # noqa: PLC0415

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
