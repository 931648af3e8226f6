"""`wattloop ui`: serves the live page of a database, or of a cluster, on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wattloop.commands.contract import Command
from wattloop.commands.settings import Address, address
from wattloop.errors import UsageError
from wattloop_operator.command_line.history import add_tariff_option, tariffs_of

if TYPE_CHECKING:
    from wattloop_operator.page.job_source import JobSource

DEFAULT_BIND = "127.0.0.1:8790"
OUTPUTS = Path("wattloop-output")
DATABASE = "wattloop.db"


def _loopback(text: str) -> Address:
    try:
        found = address(text)
    except ValueError:
        found = None
    if found is None or not found.is_loopback:
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected an address of this machine alone such as {DEFAULT_BIND}, because whoever "
            "reaches it may read the page; from another machine, forward the port: ssh -L 8790:127.0.0.1:8790 HOST"
        )
    return found


def _account(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition(":")
    if not (namespace and name):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAMESPACE:NAME")
    return namespace, name


def _configure(parser: argparse.ArgumentParser) -> None:
    # kubectl's plugin is asked for the cluster.
    is_plugin = parser.prog.startswith("kubectl ")
    parser.set_defaults(reads_cluster=is_plugin)
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--database",
        metavar="DATABASE",
        help="read this database: an output folder of wattloop run, a file, or "
        f"postgresql://USER:PASSWORD@HOST/NAME (default: {DATABASE} in this folder, or the newest in {OUTPUTS}/)",
    )
    source.add_argument("--context", metavar="NAME", help="read the cluster of this kubeconfig context")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="read the cluster of this file (default: $KUBECONFIG, else ~/.kube/config)"
    )
    parser.add_argument(
        *("-n", "--namespace"),
        metavar="NAME",
        help="read this namespace of the cluster (default: all that you may list, else that of the context); with "
        "--forward, the namespace of Wattloop's release (default: the one that has the page)",
    )
    parser.add_argument(
        "--forward",
        action="store_true",
        default=None,
        help="open the page that the chart serves (ui.enabled) by kubectl port-forward, instead of serving one",
    )
    parser.add_argument(
        "--serviceaccount",
        type=_account,
        metavar="NAMESPACE:NAME",
        help="with --forward: write a token of this account to stdout, to sign in with (default: none; use your own)",
    )
    parser.add_argument(
        "--bind",
        type=_loopback,
        default=_loopback(DEFAULT_BIND),
        metavar="HOST:PORT",
        help=f"address to serve, of this machine alone; port 0 is any free one (default: {DEFAULT_BIND})",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    add_tariff_option(parser)


def _check(arguments: argparse.Namespace) -> None:
    of_cluster = {each: getattr(arguments, each) for each in ("kubeconfig", "namespace", "forward", "serviceaccount")}
    if arguments.serviceaccount is not None and not arguments.forward:
        raise UsageError("--serviceaccount: only a page that the chart serves asks for a token; add --forward")
    if arguments.forward:
        from wattloop_operator.page.request_guard import LOOPBACK_HOSTS

        if arguments.bind.host not in LOOPBACK_HOSTS:
            raise UsageError(
                f"--bind: found {arguments.bind.host}; a forwarded page answers to {', '.join(LOOPBACK_HOSTS)} alone"
            )
    if arguments.database is not None:
        given = next((name for name, value in of_cluster.items() if value is not None), None)
        if given is not None:
            raise UsageError(f"--{given}: not with --database, which reads no cluster; leave one of them out")
        arguments.reads_cluster = False
    elif arguments.context is not None or any(value is not None for value in of_cluster.values()):
        arguments.reads_cluster = True
    elif not arguments.reads_cluster:
        arguments.database = _found_database()


def _found_database() -> str:
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
    from wattloop import interruption

    if arguments.forward:
        _forward(arguments)
        return 0
    with interruption.deferred():
        if arguments.reads_cluster:
            _serve_cluster(arguments)
        else:
            _serve_database(arguments)
    return 0


def _serve_database(arguments: argparse.Namespace) -> None:
    from wattloop_operator.page.stored_jobs import StoredJobs
    from wattloop_operator.store.store import open_store

    with open_store(arguments.database, create=False) as store:
        # A URL may contain a password.
        address = None if "://" in arguments.database else arguments.database
        _serve(arguments, StoredJobs(store, address, tariffs_of(arguments)))


def _serve_cluster(arguments: argparse.Namespace) -> None:
    from wattloop_operator.cluster.api import ClusterApi
    from wattloop_operator.cluster.api_transport import HttpTransport
    from wattloop_operator.domain.tariff import NO_TARIFFS
    from wattloop_operator.history.history_sources import cluster_context
    from wattloop_operator.page.cluster_jobs import ClusterJobs, may_list_everywhere
    from wattloop_operator.page.cluster_reader import ClusterReader

    context = cluster_context(arguments.context, arguments.kubeconfig)
    with context.client:
        api = ClusterApi(HttpTransport(context.client))
        namespace = arguments.namespace
        if namespace is None:
            namespace = "" if may_list_everywhere(api) else context.namespace
        reader = ClusterReader(api, f"context {context.name}", (namespace,) if namespace else ())
        named_file = () if arguments.kubeconfig is None else ("--kubeconfig", arguments.kubeconfig)
        # The reader's shell may have another current context.
        source = ClusterJobs(reader, ("--context", context.name, *named_file), tariffs_of(arguments) or NO_TARIFFS)
        # An error of the first reading ends the command.
        source.version()
        _serve(arguments, source)


def _forward(arguments: argparse.Namespace) -> None:
    from wattloop import interruption
    from wattloop_operator.page.port_forward import Kubectl, await_end, forwarded, served_page, viewer_token

    named = {"context": arguments.context, "kubeconfig": arguments.kubeconfig}
    kubectl = Kubectl([f"--{name}={value}" for name, value in named.items() if value is not None])
    page = served_page(kubectl, arguments.namespace)
    token = "" if arguments.serviceaccount is None else viewer_token(kubectl, *arguments.serviceaccount)
    if page.hosts:
        # Its certificate has these names.
        urls = [f"https://{each}" for each in page.hosts]
        sys.stderr.write(f"{page}: live page at {' or '.join(urls)} (ui.hosts of the chart); no port is forwarded\n")
        _open(arguments, urls[0], token)
        return
    with interruption.deferred(), forwarded(kubectl, page, arguments.bind) as (url, process):
        sys.stderr.write(f"{page}: live page at {url} (read-only; end with Ctrl-C)\n")
        _open(arguments, url, token)
        await_end(process)


def _open(arguments: argparse.Namespace, url: str, token: str = "") -> None:
    """Open a page in the browser, if that is wanted; a token to sign in with goes to the output."""
    import webbrowser

    if token:
        sys.stderr.write("sign in with this token:\n")
        sys.stdout.write(f"{token}\n")
        sys.stdout.flush()
    if arguments.open and not webbrowser.open(url):
        sys.stderr.write("no browser was found on this machine; open the address in one\n")


def _serve(arguments: argparse.Namespace, source: JobSource) -> None:
    from wattloop import interruption
    from wattloop_operator.http.http_service import PROBE_CONCURRENCY, HttpService
    from wattloop_operator.page.change_stream import ChangeStreams, OpenStreams
    from wattloop_operator.page.page_app import create_page
    from wattloop_operator.page.request_guard import LOOPBACK_HOSTS

    bind: Address = arguments.bind
    streams = OpenStreams()
    page = create_page(source, ChangeStreams(source, streams), (bind.host, *LOOPBACK_HOSTS))
    with HttpService("live page", page, bind, max_concurrency=PROBE_CONCURRENCY) as server:
        try:
            sys.stderr.write(f"{source.name}: live page at {server.url} (read-only; end with Ctrl-C)\n")
            _open(arguments, server.url)
            interruption.sleep(None)
        finally:
            streams.end()


COMMAND = Command(
    description="Serves a page that shows what the jobs of a database do, what was learned and why: decisions, "
    "beliefs, costs, energy against time, the running attempt, why a job does not run, who holds which GPU, and what "
    "each team used in a month. It follows a run, changes no job and no record, and has the same content as JSON under "
    "/api. As every command does, it migrates a database of an older version. With a context, a kubeconfig or a "
    "namespace, and as kubectl wattloop ui, it shows the jobs of a cluster that the kubeconfig's user may list; with "
    "--forward, it opens the page that the chart serves there.",
    example="  wattloop ui --database wattloop-output/digits --open\n"
    "  wattloop ui --database postgresql://reader@db/wattloop --bind 127.0.0.1:9000\n"
    "  kubectl wattloop ui -n research --open\n"
    "  kubectl wattloop ui --forward --serviceaccount research:reader --open",
    configure=_configure,
    run=_run,
    check=_check,
)
