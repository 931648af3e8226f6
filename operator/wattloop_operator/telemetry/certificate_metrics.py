"""Metrics of the reporting API's certificate: until when it is valid, and whether those who are to trust it would."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wattloop_operator.http.certificates import ServingCertificate, refusal

logger = logging.getLogger(__name__)


class CertificateCollector(Collector):
    """What is found out when it is asked for.

    Args:
        certificate: What is served.
        trusted: The certificates that pods started now are given, PEM; empty: they trust what their images trust.
        host: The host of the URL that they are told.
    """

    def __init__(self, certificate: ServingCertificate, trusted: Callable[[], str], host: str) -> None:
        self._certificate = certificate
        self._trusted = trusted
        self._host = host
        self._told = ""

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        yield GaugeMetricFamily(
            "wattloop_operator_report_certificate_expiry_timestamp_seconds",
            "When the certificate that the reporting API serves now expires.",
            value=self._certificate.expires_at.timestamp(),
        )
        is_trusted = self.is_trusted()
        if is_trusted is not None:
            yield GaugeMetricFamily(
                "wattloop_operator_report_certificate_trusted",
                "0: pods started now would refuse the certificate, by what they are given to check it.",
                value=float(is_trusted),
            )

    def is_trusted(self) -> bool | None:
        """Whether pods started now would trust what is served; None: that is up to their images. A change is logged."""
        trusted = self._trusted()
        if not trusted:
            return None
        try:
            reason = refusal(self._certificate.context, trusted, self._host)
        except ssl.SSLError as error:
            reason = str(error)
        if reason and reason != self._told:
            logger.warning(
                "pods would refuse the reporting API's certificate at %s: %s; it must be for this host, and signed by "
                "one of those in --report-certificate-authority",
                self._host,
                reason,
            )
        self._told = reason
        return not reason
