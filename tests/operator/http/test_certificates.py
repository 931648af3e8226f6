"""HTTPS with certificate files that are rotated while the server runs, requested by the real clients."""

import datetime
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from support.control_plane.certificates import CertificateAuthority, KeyPair
from wattloop.commands.settings import Address
from wattloop.errors import OperationError, UsageError
from wattloop.run.report_channel import ReportChannel
from wattloop.wire.node_energy import NodeAnswer, NodeReport
from wattloop.wire.training_messages import Report
from wattloop_agent.monitor.push.pusher import NodeReportApi
from wattloop_operator.http.certificates import AuthorityFile, ServingCertificate
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.telemetry.operator_metrics import CertificateCollector


class Served:
    """A server with certificates in a folder, and clients that trust the certificates of a file."""

    def __init__(self, folder: Path) -> None:
        self.chain, self.key, self.trusted = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self.authority = CertificateAuthority()
        self.rotate(self.authority)
        self.trusted.write_bytes(self.authority.certificate)
        self.certificate = ServingCertificate(self.chain, self.key)
        app = FastAPI()

        @app.post("/progress")
        def progress() -> dict[str, Any]:
            return {"stop": False, "reason": ""}

        @app.post("/v1/nodes/{node}/energy")
        def energy(node: str) -> dict[str, Any]:
            return NodeAnswer().to_json()

        self.service = HttpService("reporting API", app, Address("127.0.0.1", 0), certificate=self.certificate)

    def rotate(self, authority: CertificateAuthority) -> KeyPair:
        """Replace the certificate by a new one of an authority, as a kubelet replaces a mounted file."""
        pair = authority.server(["127.0.0.1"], ["reports.example"])
        for path, content in ((self.chain, pair.certificate), (self.key, pair.private_key)):
            temporary = path.with_suffix(".new")
            temporary.write_bytes(content)
            temporary.replace(path)
        return pair

    def delivered(self) -> bool:
        """Whether a training's report arrives, over a new connection, with the certificates of the trusted file."""
        channel = ReportChannel(self.service.url, certificate_authority_file=str(self.trusted))
        return channel.send(Report(process="p", sequence=1, epoch=1.0)) is not None

    def delivered_by_agent(self) -> bool:
        """Whether a node agent's report arrives."""
        token = self.trusted.with_name("token")
        token.write_text("token")
        try:
            NodeReportApi(self.service.url, token, self.trusted).send(NodeReport("node", "ledger", 1, (), ()))
        except OperationError as error:
            if "certificate verify failed" not in str(error):
                raise
            return False
        return True


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    served.service.start()
    yield served
    served.service.stop()


def test_a_report_is_delivered_over_https(served: Served) -> None:
    assert served.service.url.startswith("https://")
    assert served.delivered()


def test_after_a_rotation_the_next_connection_gets_the_new_certificate(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    assert served.delivered()
    assert served.delivered_by_agent()
    new = CertificateAuthority()
    served.rotate(new)
    assert not served.delivered()
    assert not served.delivered_by_agent()
    assert "certificate verify failed" in caplog.text
    served.trusted.write_bytes(new.certificate)
    assert served.delivered()
    assert served.delivered_by_agent()


def test_a_client_that_trusts_both_authorities_is_served_throughout_a_rotation(served: Served) -> None:
    new = CertificateAuthority()
    served.trusted.write_bytes(served.authority.certificate + new.certificate)
    assert served.delivered()
    served.rotate(new)
    assert served.delivered()


@pytest.mark.parametrize("half", ["another key", "no certificate", "nothing"])
def test_half_a_rotation_changes_nothing_until_it_is_complete(
    half: str, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    pair = CertificateAuthority().server(["127.0.0.1"], ["reports.example"])
    if half == "another key":
        served.key.write_bytes(pair.private_key)
    elif half == "no certificate":
        served.chain.write_bytes(b"")
    else:
        served.chain.unlink()
    with caplog.at_level(logging.WARNING):
        assert served.delivered()
        assert served.delivered()
    assert f"the certificate {served.chain} with the key {served.key}: " in caplog.text
    assert caplog.text.count("serving the previous one") == 1
    new = CertificateAuthority()
    served.trusted.write_bytes(new.certificate)
    served.rotate(new)
    assert served.delivered()


def test_a_metric_is_the_expiry_of_the_certificate_served_now(served: Served) -> None:
    pair = served.rotate(served.authority)
    expiry = x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc
    assert expiry > datetime.datetime.now(datetime.UTC)
    found = metrics_of(CertificateCollector(served.certificate, lambda: "", "reports.example"))
    assert found == {"wattloop_operator_report_certificate_expiry_timestamp_seconds": expiry.timestamp()}


@pytest.mark.parametrize(
    ("host", "own", "reason"),
    [
        ("reports.example", True, ""),
        ("127.0.0.1", True, ""),
        ("another.example", True, "Hostname mismatch"),
        ("reports.example", False, "unable to get local issuer certificate"),
    ],
)
def test_a_metric_and_the_log_show_whether_pods_would_accept_the_certificate(
    host: str, own: bool, reason: str, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    authority = served.authority if own else CertificateAuthority()
    collector = CertificateCollector(served.certificate, authority.certificate.decode, host)
    for _ in range(2):
        assert metrics_of(collector)["wattloop_operator_report_certificate_trusted"] == (not reason)
    assert caplog.text.count(f"pods would refuse the reporting API's certificate at {host}: ") == bool(reason)
    assert reason in caplog.text


def metrics_of(collector: CertificateCollector) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(collector)
    return {sample.name: sample.value for family in registry.collect() for sample in family.samples}


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_certificate_that_cannot_be_served_is_an_error_at_the_start(content: bytes | None, tmp_path: Path) -> None:
    chain, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    if content is not None:
        chain.write_bytes(content)
        key.write_bytes(content)
    with pytest.raises(OperationError, match=f"the certificate {chain} with the key {key}: "):
        ServingCertificate(chain, key)


def test_pods_get_the_authority_of_the_time_they_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "ca.crt"
    first, second = CertificateAuthority().certificate, CertificateAuthority().certificate
    path.write_bytes(first)
    authority = AuthorityFile(path)
    path.write_bytes(second)
    assert authority.text() == second.decode()
    path.write_bytes(b"-----BEGIN CERT")
    assert authority.text() == second.decode()
    assert f"{path}: " in caplog.text
    path.write_bytes(first + second)
    assert authority.text() == (first + second).decode()


@pytest.mark.parametrize("content", [None, b"", b"no certificate", "é".encode()])
def test_an_authority_file_without_certificates_is_an_error(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=f"--report-certificate-authority: {path}: .*expected a file of certificates"):
        AuthorityFile(path)


def test_without_an_authority_file_pods_use_the_certificates_of_their_images() -> None:
    assert AuthorityFile(None).text() == ""
