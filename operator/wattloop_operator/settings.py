"""The operator's settings: an option, else ``WATTLOOP_<NAME>``, else the config file, else the default."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wattloop.commands.settings import Address, Setting, address, address_or_off, integer, one_of, values_of
from wattloop.errors import UsageError

PREFIX = "WATTLOOP_"
SERVICE_ACCOUNT = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognised, not bound


@dataclass(frozen=True)
class Settings:
    """What `SETTINGS` describes, with the values in force."""

    database: str
    kubeconfig: Path | None
    context: str
    namespaces: tuple[str, ...]
    workers: int
    resync_seconds: int
    report_bind: Address
    report_url: str
    report_certificate: Path | None
    report_key: Path | None
    report_certificate_authority: Path | None
    agent_socket_folder: str
    agent_service_account: str
    agent_patience_seconds: int
    metrics_bind: Address | None
    health_bind: Address | None
    leader_election_namespace: str
    leader_election_name: str
    leader_lease_seconds: int
    log_format: str
    log_level: str


def service_account(text: str) -> str:
    """A service account, or none; fit for a setting's parse."""
    if text and not SERVICE_ACCOUNT.fullmatch(text):
        raise ValueError("a service account, NAMESPACE/NAME")
    return text


def namespaces(text: str) -> tuple[str, ...]:
    """Names of namespaces, separated by commas; fit for a setting's parse."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(","))) if text.strip() else ()
    if not all(NAMESPACE.fullmatch(name) for name in names):
        raise ValueError("names of namespaces, separated by commas")
    return names


SETTINGS = (
    Setting("database", str, "sqlite:///wattloop.db", "where outcomes are remembered: sqlite:///FILE, or "
            "postgresql://USER@HOST/DATABASE; a URL with a password belongs into the variable", "URL"),
    Setting("kubeconfig", Path, None, "the cluster to work in; default: the pod's own, else the usual kubeconfig",
            "FILE"),
    Setting("context", str, "", "the kubeconfig's context; default: its current one", "NAME"),
    Setting("namespaces", namespaces, "", "namespaces whose jobs are run, separated by commas; the operator needs no "
            "rights in others; default: all", "NAMES"),
    Setting("workers", integer(1, 64), "8", "how many jobs are looked after at once", "NUMBER"),
    Setting("resync-seconds", integer(10, 86_400), "300", "how often the object cache is compared with the API "
            "server", "SECONDS"),
    Setting("report-bind", address, "127.0.0.1:8080", "where training pods and node agents report, HOST:PORT",
            "ADDRESS"),
    Setting("report-url", str, "", "the URL by which pods reach that address; needed where it is bound to all "
            "addresses", "URL"),
    Setting("report-certificate", Path, None, "certificate chain (PEM) of the reporting API; with it, reports come by "
            "HTTPS", "FILE"),
    Setting("report-key", Path, None, "the certificate's private key (PEM)", "FILE"),
    Setting("report-certificate-authority", Path, None, "certificates (PEM) by which pods check the reporting API",
            "FILE"),
    Setting("agent-socket-folder", str, "", "folder of the nodes with the node agent's socket, mounted into training "
            "pods; default: no agent", "FOLDER"),
    Setting("agent-service-account", service_account, "", "what the node agents run as that report what each pod has "
            "used; default: no reports of nodes are taken", "NAMESPACE/NAME"),
    Setting("agent-patience-seconds", integer(1, 600), "10", "how long an attempt that has ended waits for the agents' "
            "last word on its energy; give it twice their --push-interval", "SECONDS"),
    Setting("metrics-bind", address_or_off, "127.0.0.1:9402", "where to serve Prometheus metrics, HOST:PORT or off",
            "ADDRESS"),
    Setting("health-bind", address_or_off, "127.0.0.1:8081", "where to serve /healthz and /readyz, HOST:PORT or off",
            "ADDRESS"),
    Setting("leader-election-namespace", str, "", "namespace of the Lease by which one of several operators acts; "
            "default: the pod's own, else default", "NAMESPACE"),
    Setting("leader-election-name", str, "wattloop-operator", "name of that Lease", "NAME"),
    Setting("leader-lease-seconds", integer(6, 300), "15", "how long another operator waits after this one's last sign "
            "of life", "SECONDS"),
    Setting("log-format", one_of("text", "json"), "text", "how log lines look, text or json", "FORMAT"),
    Setting("log-level", one_of("debug", "info", "warning", "error"), "info", "the least level logged", "LEVEL"),
)  # fmt: skip


def settings_from(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """The settings in force.

    Raises:
        UsageError: A value is wrong, or does not go with another one.
        InputError: The config file is wrong.
    """
    settings = Settings(**values_of(SETTINGS, PREFIX, arguments, environment))
    if (settings.report_certificate is None) != (settings.report_key is None):
        raise UsageError("--report-certificate and --report-key go together: give both, or neither")
    if settings.report_bind.host in WILDCARDS and not settings.report_url:
        raise UsageError(
            f"--report-bind {settings.report_bind} says nothing of how pods reach it; give --report-url, such as "
            "https://wattloop-operator.wattloop.svc:8080"
        )
    if settings.report_url and not settings.report_url.startswith(("http://", "https://")):
        raise UsageError(f"--report-url: found {settings.report_url!r}, expected http://… or https://…")
    return settings
