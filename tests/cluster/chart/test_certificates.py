"""The chart's certificate: its uses, and its parts that survive upgrades and reinstallations."""

import base64
import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from support.chart.tls import Certificates, handshake
from support.control_plane.chart import CHART
from support.control_plane.commands import ClusterCommand


@dataclass(frozen=True)
class Installed:
    """A release in a namespace of its own."""

    helm: ClusterCommand
    kubectl: ClusterCommand
    namespace: str

    def helm_does(self, verb: str, *options: str) -> None:
        """Install or upgrade."""
        settings = f"--set=crds.install=false,operator.replicas=0,agent.namespace={self.namespace}"
        self.helm(verb, "wattloop", str(CHART), settings, *options, namespace=self.namespace)

    def certificates(self) -> Certificates:
        """The certificates in the cluster."""
        authority = self._secret("wattloop-reporting-authority")
        served = self._secret("wattloop-reporting")
        config_map = self.kubectl.json("get", "configmap", "wattloop-reporting-authority", namespace=self.namespace)
        return Certificates(
            authority=authority["tls.crt"],
            authority_key=authority["tls.key"],
            trusted_by_pods=served["ca.crt"],
            trusted_by_agents=config_map["data"]["ca.crt"].encode(),
            served=served["tls.crt"],
            key=served["tls.key"],
        )

    def _secret(self, name: str) -> dict[str, bytes]:
        data: dict[str, Any] = self.kubectl.json("get", "secret", name, namespace=self.namespace)["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}


@pytest.fixture
def installed(helm: ClusterCommand, kubectl: ClusterCommand, namespace: str) -> Iterator[Installed]:
    """The release wattloop with its own certificate, without pods of the operator."""
    release = Installed(helm, kubectl, namespace)
    release.helm_does("install")
    yield release
    helm("uninstall", "wattloop", "--ignore-not-found", namespace=namespace)


def test_pods_and_agents_trust_the_operators_certificate_for_the_services_name_and_that_of_the_next_release(
    installed: Installed, tmp_path: Path
) -> None:
    made = installed.certificates()
    assert made.authority == made.trusted_by_pods == made.trusted_by_agents
    service = f"wattloop-operator.{installed.namespace}"
    for host in (service, f"{service}.svc", f"{service}.svc.cluster.local", "localhost"):
        assert handshake(made, host, tmp_path) == "welcome"
    assert "Hostname mismatch" in handshake(made, f"another.{installed.namespace}.svc", tmp_path)
    remaining = made.parsed.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert remaining.days == 1094
    # An upgrade in the second half of that time renews it.
    secret = installed.kubectl.json("get", "secret", "wattloop-reporting", namespace=installed.namespace)
    renewal = datetime.date.fromisoformat(secret["metadata"]["annotations"]["wattloop.dev/renew-after"])
    assert (renewal - datetime.datetime.now(datetime.UTC).date()).days in (547, 548)
    assert x509.load_pem_x509_certificate(made.authority).not_valid_after_utc > made.parsed.not_valid_after_utc

    # Trainings that outlive the release.
    installed.helm("uninstall", "wattloop", "--wait", namespace=installed.namespace)
    installed.helm_does("install")
    new = installed.certificates()
    assert new.served != made.served
    assert new.trusted_by_pods == made.trusted_by_pods
    assert handshake(new, f"{service}.svc", tmp_path) == "welcome"


def test_an_upgrade_renews_the_certificate_once_by_the_same_authority_and_removes_it_for_ones_own(
    installed: Installed, tmp_path: Path
) -> None:
    secret, namespace = ("secret", "wattloop-reporting"), installed.namespace
    host = f"wattloop-operator.{namespace}.svc"
    made = installed.certificates()

    installed.kubectl("delete", *secret, namespace=namespace)
    made = renewed_once(installed, made, host, tmp_path)

    # Half of its time is over; the annotation of this test is in conflict with the chart's.
    installed.kubectl("annotate", *secret, "wattloop.dev/renew-after=2020-01-01", "--overwrite", namespace=namespace)
    made = renewed_once(installed, made, host, tmp_path, "--force-conflicts")

    for name in ("reports.example", "198.18.77.5"):
        made = renewed_once(installed, made, name, tmp_path, f"--set=reporting.url=https://{name}:8443/wattloop")

    installed.helm_does("upgrade", "--set=reporting.tls.mode=secret,reporting.tls.secretName=corporate")
    names = installed.kubectl("get", "secrets", "--output=name", namespace=namespace)
    assert "secret/wattloop-reporting\n" not in names


def renewed_once(installed: Installed, made: Certificates, host: str, folder: Path, *options: str) -> Certificates:
    """Upgrade twice, the second time with another value: the first renews the certificate, the next keeps it."""
    installed.helm_does("upgrade", *options)
    new = installed.certificates()
    assert new.served != made.served
    assert new.key != made.key
    assert (new.authority, new.authority_key) == (made.authority, made.authority_key)
    assert handshake(new, host, folder) == "welcome"
    installed.helm_does("upgrade", *options, "--set=operator.logLevel=debug")
    assert installed.certificates() == new
    return new
