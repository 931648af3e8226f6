"""`wattloop ui`: serves the live page of a database on this machine."""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from pathlib import Path

from wattloop.commands.contract import Command
from wattloop.commands.settings import Address, address
from wattloop.errors import UsageError

DEFAULT_BIND = "127.0.0.1:8790"
OUTPUTS = Path("wattloop-output")
DATABASE = "wattloop.db"


def _loopback(text: str) -> Address:
    """Parse an address of this machine alone."""
    try:
        found = address(text)
        is_own = found.host == "localhost" or ipaddress.ip_address(found.host).is_loopback
    except ValueError:
        is_own = False
    if not is_own:
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected an address of this machine alone such as {DEFAULT_BIND}, because whoever "
            "reaches it may read the page; from another machine, forward the port: ssh -L 8790:127.0.0.1:8790 HOST"
        )
    return found


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--database",
        metavar="DATABASE",
        help="read this database: an output folder of wattloop run, a file, or "
        f"postgresql://USER:PASSWORD@HOST/NAME (default: {DATABASE} in this folder, or the newest in {OUTPUTS}/)",
    )
    parser.add_argument(
        "--bind",
        type=_loopback,
        default=_loopback(DEFAULT_BIND),
        metavar="HOST:PORT",
        help=f"address to serve, of this machine alone; port 0 is any free one (default: {DEFAULT_BIND})",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def _check(arguments: argparse.Namespace) -> None:
    if arguments.database is None:
        arguments.database = _found_database()


def _found_database() -> str:
    """The database that is meant without --database.

    Raises:
        UsageError: There is none.
    """
    if os.path.lexists(DATABASE):
        return "."
    found = [path.parent for path in OUTPUTS.glob(f"*/{DATABASE}") if path.is_file()]
    if not found:
        raise UsageError(
            f"there is no {DATABASE} in this folder or in {OUTPUTS}/; name one with --database, or make one with "
            "wattloop run"
        )
    return str(max(found, key=lambda folder: (folder / DATABASE).stat().st_mtime))


def _run(arguments: argparse.Namespace) -> int:
    """Serve the page until the program is asked to end."""
    import webbrowser

    from wattloop import interruption
    from wattloop_operator.http.http_service import PROBE_CONCURRENCY, HttpService
    from wattloop_operator.page.change_stream import ChangeStreams
    from wattloop_operator.page.page_app import create_page
    from wattloop_operator.page.stored_jobs import StoredJobs
    from wattloop_operator.store.store import open_store

    bind: Address = arguments.bind
    with interruption.deferred(), open_store(arguments.database, create=False) as store:
        # A URL may contain a password.
        source = StoredJobs(store, None if "://" in arguments.database else arguments.database)
        streams = ChangeStreams(source.version)
        page = create_page(source, streams, (bind.host, "localhost", "127.0.0.1", "::1"))
        with HttpService("live page", page, bind, max_concurrency=PROBE_CONCURRENCY) as server:
            try:
                sys.stderr.write(f"{source.name}: live page at {server.url} (read-only; end with Ctrl-C)\n")
                if arguments.open and not webbrowser.open(server.url):
                    sys.stderr.write("no browser was found on this machine; open the address in one\n")
                interruption.sleep(None)
            finally:
                streams.end()
    return 0


COMMAND = Command(
    description="Serves a page that shows what the jobs of a database do, what was learned and why: decisions, "
    "beliefs, costs, energy against time, the running attempt, and why a job does not run. It follows a run, "
    "changes no job and no record, and has the same content as JSON under /api. As every command does, it migrates a "
    "database of an older version.",
    example="  wattloop ui --database wattloop-output/digits --open\n"
    "  wattloop ui --database postgresql://reader@db/wattloop --bind 127.0.0.1:9000",
    configure=_configure,
    run=_run,
    check=_check,
)
