"""The operator's settings: from an option, else ``WATTLOOP_<NAME>``, else the config file, else the default."""

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
WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


@dataclass(frozen=True)
class OperatorSettings:
    """The values of `SETTINGS`."""

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
    agent_report_timeout_seconds: int
    read_pod_logs: str
    metrics_bind: Address | None
    health_bind: Address | None
    leader_election_namespace: str
    leader_election_name: str
    leader_lease_seconds: int
    tariff: Path | None
    log_format: str
    log_level: str


def service_account(text: str) -> str:
    """Parse a service account, which may be empty, for a `Setting`."""
    if text and not SERVICE_ACCOUNT.fullmatch(text):
        raise ValueError("a service account, NAMESPACE/NAME")
    return text


def namespaces(text: str) -> tuple[str, ...]:
    """Parse comma-separated names of namespaces for a `Setting`."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(","))) if text.strip() else ()
    if not all(NAMESPACE.fullmatch(name) for name in names):
        raise ValueError("names of namespaces, separated by commas")
    return names


SETTINGS = (
    Setting("database", str, "sqlite:///wattloop.db", "database of the outcomes: sqlite:///FILE or "
            "postgresql://USER@HOST/DATABASE; give a URL with a password by the environment variable", "URL"),
    Setting("kubeconfig", Path, None, "kubeconfig of the cluster; default: the pod's service account, else the usual "
            "kubeconfig", "FILE"),
    Setting("context", str, "", "context of the kubeconfig; default: the current one", "NAME"),
    Setting("namespaces", namespaces, "", "comma-separated namespaces whose jobs are run; the operator needs no rights "
            "in others; default: all", "NAMES"),
    Setting("workers", integer(1, 64), "8", "number of jobs that are reconciled concurrently", "NUMBER"),
    Setting("resync-seconds", integer(10, 86_400), "300", "interval of comparing the object cache with the API server",
            "SECONDS"),
    Setting("report-bind", address, "127.0.0.1:8080", "address of the reporting API for training pods and node agents, "
            "HOST:PORT", "ADDRESS"),
    Setting("report-url", str, "", "URL by which pods reach that address; required if it is bound to all interfaces",
            "URL"),
    Setting("report-certificate", Path, None, "certificate chain (PEM) of the reporting API, which is then served by "
            "HTTPS", "FILE"),
    Setting("report-key", Path, None, "private key (PEM) of the certificate", "FILE"),
    Setting("report-certificate-authority", Path, None, "certificates (PEM) by which pods verify the reporting API",
            "FILE"),
    Setting("agent-socket-folder", str, "", "folder on the nodes with the node agent's socket, mounted into training "
            "pods; default: no agent", "FOLDER"),
    Setting("agent-service-account", service_account, "", "service account of the node agents, which report the energy "
            "of pods; default: reports of nodes are rejected", "NAMESPACE/NAME"),
    Setting("agent-report-timeout-seconds", integer(1, 600), "10", "how long an ended attempt waits for the "
            "agents' final report of its energy; set it to twice their --push-interval", "SECONDS"),
    Setting("read-pod-logs", one_of("yes", "no"), "no", "whether to read the logs of training pods, for jobs with the "
            "reporting source Logs; needs the right to get pods/log", "yes|no"),
    Setting("metrics-bind", address_or_off, "127.0.0.1:9402", "address of the Prometheus metrics, HOST:PORT or off",
            "ADDRESS"),
    Setting("health-bind", address_or_off, "127.0.0.1:8081", "address of /healthz and /readyz, HOST:PORT or off",
            "ADDRESS"),
    Setting("leader-election-namespace", str, "", "namespace of the Lease of the leader election; default: the pod's "
            "own, else default", "NAMESPACE"),
    Setting("leader-election-name", str, "wattloop-operator", "name of that Lease", "NAME"),
    Setting("leader-lease-seconds", integer(6, 300), "15", "duration of the Lease: another operator takes over so long "
            "after the leader's last renewal", "SECONDS"),
    Setting("tariff", Path, None, "price and carbon intensity of electricity by namespace, which the chart writes from "
            "its value tariff; default: not known", "FILE"),
    Setting("log-format", one_of("text", "json"), "text", "format of log lines, text or json", "FORMAT"),
    Setting("log-level", one_of("debug", "info", "warning", "error"), "info", "lowest level that is logged", "LEVEL"),
)  # fmt: skip


def settings_from(arguments: argparse.Namespace, environment: Mapping[str, str]) -> OperatorSettings:
    """Read the settings.

    Raises:
        UsageError: A value is invalid, or inconsistent with another one.
        InputError: The config file is invalid.
    """
    settings = OperatorSettings(**values_of(SETTINGS, PREFIX, arguments, environment))
    if (settings.report_certificate is None) != (settings.report_key is None):
        raise UsageError("--report-certificate and --report-key require each other; give both or neither")
    if settings.report_bind.host in WILDCARDS and not settings.report_url:
        raise UsageError(
            f"--report-bind {settings.report_bind} is not an address that pods can reach; give --report-url, such as "
            "https://wattloop-operator.wattloop.svc:8080"
        )
    if settings.report_url and not settings.report_url.startswith(("http://", "https://")):
        raise UsageError(f"--report-url: found {settings.report_url!r}, expected http://… or https://…")
    return settings
