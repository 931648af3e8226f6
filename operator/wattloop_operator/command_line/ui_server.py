"""`wattloop ui-server`: serves the live page of a cluster to viewers who sign in with their own tokens."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wattloop.commands.contract import Command
from wattloop.commands.settings import Address, Setting, add_options, address, address_or_off, one_of, values_of
from wattloop.errors import UsageError
from wattloop_operator.operator_settings import namespaces

if TYPE_CHECKING:
    from wattloop_operator.cluster.api import ClusterApi

PREFIX = "WATTLOOP_UI_"
# Requests of several viewers run at once; each asks the API server one thing after another.
API_CONNECTIONS = 16
# A namespace's objects take a quarter of the container's memory at most, and as much again while they are read again.
NAMESPACE_DIVISOR = 4


def host_names(text: str) -> tuple[str, ...]:
    """Parse comma-separated names of hosts for a `Setting`."""
    names = tuple(dict.fromkeys(each.strip().lower() for each in text.split(","))) if text.strip() else ()
    if not all(names) or any(character in each for each in names for character in "/:[] "):
        raise ValueError("names of hosts, separated by commas, without scheme and port")
    return names


SETTINGS = (
    Setting("bind", address, "127.0.0.1:8790", "address of the page, HOST:PORT; one that other machines reach needs a "
            "certificate, because viewers send their tokens to it", "ADDRESS"),
    Setting("hosts", host_names, "", "comma-separated names by which browsers reach it, besides localhost", "NAMES"),
    Setting("certificate", Path, None, "certificate chain (PEM) of the page, which is then served by HTTPS", "FILE"),
    Setting("key", Path, None, "private key (PEM) of the certificate", "FILE"),
    Setting("health-bind", address_or_off, "off", "address of /healthz and /readyz, HOST:PORT or off", "ADDRESS"),
    Setting("namespaces", namespaces, "", "comma-separated namespaces whose jobs are shown; default: all", "NAMES"),
    Setting("kubeconfig", Path, None, "kubeconfig of the cluster; default: the pod's service account, else the usual "
            "kubeconfig", "FILE"),
    Setting("context", str, "", "context of the kubeconfig; default: the current one", "NAME"),
    Setting("tariff", Path, None, "price and carbon intensity of electricity by namespace; default: not known", "FILE"),
    Setting("log-format", one_of("text", "json"), "text", "format of log lines, text or json", "FORMAT"),
    Setting("log-level", one_of("debug", "info", "warning", "error"), "info", "lowest level that is logged", "LEVEL"),
)  # fmt: skip


@dataclass(frozen=True)
class UiServerSettings:
    """The values of `SETTINGS`."""

    bind: Address
    hosts: tuple[str, ...]
    certificate: Path | None
    key: Path | None
    health_bind: Address | None
    namespaces: tuple[str, ...]
    kubeconfig: Path | None
    context: str
    tariff: Path | None
    log_format: str
    log_level: str


def settings_from(arguments: argparse.Namespace, environment: Mapping[str, str]) -> UiServerSettings:
    """Read the settings.

    Raises:
        UsageError: A value is invalid, or inconsistent with another one.
        InputError: The config file is invalid.
    """
    settings = UiServerSettings(**values_of(SETTINGS, PREFIX, arguments, environment))
    if (settings.certificate is None) != (settings.key is None):
        raise UsageError("--certificate and --key require each other; give both or neither")
    if settings.certificate is None and not settings.bind.is_loopback:
        raise UsageError(
            f"--bind {settings.bind}: viewers would send their tokens over the network unencrypted; give --certificate "
            "and --key, or bind 127.0.0.1, which kubectl port-forward reaches in a pod"
        )
    return settings


def _configure(parser: argparse.ArgumentParser) -> None:
    add_options(parser, SETTINGS, PREFIX)


def _run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments, os.environ)
    from wattloop import interruption
    from wattloop_operator.cluster.api import ClusterApi
    from wattloop_operator.cluster.api_server import ClusterAddress
    from wattloop_operator.cluster.api_transport import HttpTransport
    from wattloop_operator.telemetry.operator_logs import set_up_logs

    set_up_logs(settings.log_format, settings.log_level)
    client = ClusterAddress(settings.kubeconfig, settings.context).client(API_CONNECTIONS)
    with client, interruption.deferred():
        _serve(settings, ClusterApi(HttpTransport(client)))
    return 0


def _serve(settings: UiServerSettings, api: ClusterApi) -> None:
    import contextlib

    from wattloop import interruption, threads
    from wattloop_operator.domain.tariff import NO_TARIFFS, read_tariffs
    from wattloop_operator.http.certificates import ServingCertificate
    from wattloop_operator.http.http_service import PROBE_CONCURRENCY, HttpService
    from wattloop_operator.memory_shares import container_bytes
    from wattloop_operator.page.change_stream import OpenStreams
    from wattloop_operator.page.cluster_page import create_cluster_page
    from wattloop_operator.page.request_guard import LOOPBACK_HOSTS
    from wattloop_operator.telemetry.health import create_health_app

    certificate = None
    if settings.certificate is not None and settings.key is not None:
        certificate = ServingCertificate(settings.certificate, settings.key)
    streams = OpenStreams()
    hosts = (*settings.hosts, *LOOPBACK_HOSTS)
    page = create_cluster_page(
        api,
        streams,
        hosts,
        is_https=certificate is not None,
        namespaces=settings.namespaces,
        namespace_bytes=(container_bytes() or sys.maxsize) // NAMESPACE_DIVISOR,
        tariffs=NO_TARIFFS if settings.tariff is None else read_tariffs(settings.tariff),
    )
    live = {"threads": threads.problem}
    with contextlib.ExitStack() as stack:
        server = HttpService(
            "live page", page, settings.bind, certificate=certificate, max_concurrency=PROBE_CONCURRENCY
        )
        stack.enter_context(server)
        stack.callback(streams.end)
        if settings.health_bind is not None:
            ready = live | {"page": lambda: "" if server.alive else "the page is not served"}
            health = HttpService(
                "health", create_health_app(live, ready), settings.health_bind, max_concurrency=PROBE_CONCURRENCY
            )
            stack.enter_context(health)
        interruption.sleep(None)


COMMAND = Command(
    description="Serves the live page of a cluster to several viewers. Each one signs in with a token of the cluster, "
    "which the API server reviews, and sees the jobs of the namespaces that he may list; docs/live-page.md. The "
    "process itself needs the rights to list recurringtrainingjobs and trainingrecurrences, and to create tokenreviews "
    "and subjectaccessreviews. Each setting is read from the first of option, environment variable and config file "
    "that has it.",
    example="  wattloop ui-server --context kind-dev\n"
    "  wattloop ui-server --bind 0.0.0.0:8790 --hosts wattloop.example --certificate tls.crt --key tls.key",
    configure=_configure,
    run=_run,
)
