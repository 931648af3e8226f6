"""``wattloop agent``: the node agent in the foreground."""

import argparse
import os

from wattloop import interruption
from wattloop.commands.contract import Command
from wattloop.errors import UsageError
from wattloop_agent.agent_settings import add_options, settings_from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``wattloop agent``."""
    add_options(parser)
    parser.add_argument(
        "--watch-parent", type=int, metavar="PID", help="restore the GPUs and end when this process ends"
    )
    parser.add_argument(
        "--ready-descriptor", type=int, metavar="FD", help="write a line to it once the socket is served"
    )
    parser.add_argument(
        "--restore-only", action="store_true", help="restore the GPUs that a dead agent left held, and end"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the requested part until it is asked to end."""
    settings = settings_from(arguments, os.environ)
    if arguments.ready_descriptor is not None:
        _check_descriptor(arguments.ready_descriptor)
    # Each part imports only what it needs, to keep the power controller small.
    from wattloop_agent.agent_logs import set_up_logs  # noqa: PLC0415

    set_up_logs(settings.log_format, settings.log_level)
    if arguments.restore_only:
        from wattloop_agent.power_controller_main import restore_everything  # noqa: PLC0415

        return restore_everything(settings)
    if settings.part == "power-controller":
        from wattloop_agent.power_controller_main import run_power_controller  # noqa: PLC0415

        return run_power_controller(settings)
    if settings.part == "monitor":
        # Not with a power controller of its own: it must be able to end that, and on a laptop it runs as the user.
        from wattloop_agent.monitor.confinement import confine  # noqa: PLC0415

        with interruption.without_thread():
            confine(settings.pod_logs if settings.identity == "pod" else None)
    from wattloop_agent.monitor_main import run_monitor  # noqa: PLC0415

    return run_monitor(settings, arguments.watch_parent, arguments.ready_descriptor)


def _check_descriptor(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except (OSError, OverflowError) as error:
        raise UsageError(f"--ready-descriptor: found {descriptor}, expected an open file descriptor") from error


COMMAND = Command(
    description="Holds GPUs at power limits and clocks on behalf of callers, restores them whatever process dies, and "
    "measures the GPUs' energy. Every setting is an option, an environment variable or a key of the config file, in "
    "this order.",
    example="  wattloop agent --socket /run/wattloop/agent.sock --metrics-bind 127.0.0.1:9402\n"
    "  wattloop agent --restore-only --state-directory /var/lib/wattloop/agent",
    configure=add_arguments,
    run=run,
)
