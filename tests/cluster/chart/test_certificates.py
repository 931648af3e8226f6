"""The chart's certificate: its uses, and its parts that survive upgrades and reinstallations."""

from __future__ import annotations

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


def test_pods_and_agents_trust_the_operators_certificate_for_the_services_name(
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
    assert x509.load_pem_x509_certificate(made.authority).not_valid_after_utc > made.parsed.not_valid_after_utc


def test_an_upgrade_keeps_the_certificate(installed: Installed) -> None:
    made = installed.certificates()
    installed.helm_does("upgrade", "--set=operator.logLevel=debug")
    assert installed.certificates() == made


@pytest.mark.parametrize(
    "why", ["half of its time is over", "its name has changed", "its address has changed", "it was lost"]
)
def test_an_upgrade_renews_the_certificate_and_keeps_the_authority(
    why: str, installed: Installed, tmp_path: Path
) -> None:
    made = installed.certificates()
    options: tuple[str, ...] = ()
    host = f"wattloop-operator.{installed.namespace}.svc"
    secret = ("secret", "wattloop-reporting")
    if why == "half of its time is over":
        annotation = "wattloop.dev/renew-after=2020-01-01"
        installed.kubectl("annotate", *secret, annotation, "--overwrite", namespace=installed.namespace)
        options = ("--force-conflicts",)  # with the annotation of this test
    elif why == "its name has changed":
        host = "reports.example"
        options = (f"--set=reporting.url=https://{host}:8443",)
    elif why == "its address has changed":
        host = "198.18.77.5"
        options = (f"--set=reporting.url=https://{host}:8443/wattloop",)
    else:
        installed.kubectl("delete", *secret, namespace=installed.namespace)
    installed.helm_does("upgrade", *options)
    new = installed.certificates()
    assert new.served != made.served
    assert new.key != made.key
    assert (new.authority, new.authority_key) == (made.authority, made.authority_key)
    assert handshake(new, host, tmp_path) == "welcome"
    # Once is enough.
    installed.helm_does("upgrade", *options)
    assert installed.certificates() == new


def test_trainings_that_outlive_the_release_trust_the_next_one(installed: Installed, tmp_path: Path) -> None:
    made = installed.certificates()
    installed.helm("uninstall", "wattloop", "--wait", namespace=installed.namespace)
    installed.helm_does("install")
    new = installed.certificates()
    assert new.served != made.served
    assert new.trusted_by_pods == made.trusted_by_pods
    assert handshake(new, f"wattloop-operator.{installed.namespace}.svc", tmp_path) == "welcome"


def test_an_upgrade_to_own_certificates_removes_the_charts_keys(installed: Installed) -> None:
    installed.helm_does("upgrade", "--set=reporting.tls.mode=secret,reporting.tls.secretName=corporate")
    names = installed.kubectl("get", "secrets", "--output=name", namespace=installed.namespace)
    assert "secret/wattloop-reporting\n" not in names
