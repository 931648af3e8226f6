"""Metrics of the reporting API's certificate: its expiry, and whether pods would accept it."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wattloop_operator.http.certificates import ServingCertificate, verification_error

logger = logging.getLogger(__name__)


class CertificateCollector(Collector):
    """Computes the metrics at each scrape.

    Args:
        certificate: The served certificate.
        trusted: The certificates that pods started now get, PEM; empty: they use those of their
            images.
        host: The host of the URL that they get.
    """

    def __init__(self, certificate: ServingCertificate, trusted: Callable[[], str], host: str) -> None:
        self._certificate = certificate
        self._trusted = trusted
        self._host = host
        self._logged = ""

    def collect(self) -> Iterator[Metric]:
        """The current metrics."""
        yield GaugeMetricFamily(
            "wattloop_operator_report_certificate_expiry_timestamp_seconds",
            "Expiry of the certificate that the reporting API serves now.",
            value=self._certificate.expires_at.timestamp(),
        )
        is_trusted = self.check_trust()
        if is_trusted is not None:
            yield GaugeMetricFamily(
                "wattloop_operator_report_certificate_trusted",
                "Whether pods started now would accept the certificate, by the certificates that they get.",
                value=float(is_trusted),
            )

    def check_trust(self) -> bool | None:
        """Whether pods started now would accept the certificate; None if their images decide. Logs each new reason."""
        trusted = self._trusted()
        if not trusted:
            return None
        try:
            reason = verification_error(self._certificate.context, trusted, self._host)
        except ssl.SSLError as error:
            reason = str(error)
        if reason and reason != self._logged:
            logger.warning(
                "pods would refuse the reporting API's certificate at %s: %s; it must be issued for this host by an "
                "authority in --report-certificate-authority",
                self._host,
                reason,
            )
        self._logged = reason
        return not reason
