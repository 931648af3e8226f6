"""Client of the operator's API for node reports, over HTTP or HTTPS."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from wattloop.errors import OperationError
from wattloop.wire.message_fields import MessageError
from wattloop.wire.node_energy import MAX_NODE_ANSWER_BYTES, NodeAnswer, NodeReport

TIMEOUT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
CHUNK_BYTES = 64 * 1024
MAX_ERROR_BYTES = 2048


@dataclass(frozen=True)
class NodeReportApi:
    """The operator's API for node reports.

    Attributes:
        url: URL, http://… or https://…
        token_file: File of the agent's token; read for each report, because Kubernetes rotates it.
        certificate_authority_file: Certificates that verify the operator, also read for each
            report; None for those of the system.
    """

    url: str
    token_file: Path
    certificate_authority_file: Path | None = None

    @property
    def verified(self) -> bool:
        """Whether the answers are the operator's: its certificate is verified at each connection."""
        return urlsplit(self.url).scheme == "https"

    def send(self, report: NodeReport) -> NodeAnswer:
        """Deliver a report.

        Raises:
            OperationError: The report was not delivered or not accepted, or the answer is invalid.
        """
        try:
            status, body = self._post(report)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise OperationError(f"{self.url}: {str(error) or type(error).__name__}") from error
        if status != http.client.OK:
            message = body[:MAX_ERROR_BYTES].decode("utf-8", "replace")
            raise OperationError(f"{self.url}: refused with HTTP {status}: {message}")
        try:
            return NodeAnswer.from_json(json.loads(body))
        except (MessageError, ValueError, RecursionError) as error:
            raise OperationError(f"{self.url}: invalid answer: {error}") from error

    def _post(self, report: NodeReport) -> tuple[int, bytes]:
        # One connection for each report, because the certificates may have changed. It follows no
        # redirect and uses no proxy, so that only the operator gets the token.
        token = self.token_file.read_text(encoding="ascii").strip()
        address = urlsplit(self.url)
        connection = self._connection(address.scheme, address.hostname or "", address.port)
        try:
            connection.request(
                "POST",
                f"{address.path.rstrip('/')}/v1/nodes/{quote(report.node, safe='')}/energy",
                json.dumps(report.to_json(), allow_nan=False).encode(),
                {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
            )
            response = connection.getresponse()
            return response.status, _body(response)
        finally:
            connection.close()

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        authority = self.certificate_authority_file
        context = ssl.create_default_context(cafile=None if authority is None else str(authority))
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)


def _body(response: http.client.HTTPResponse) -> bytes:
    """Return the body, bounded in size and in time."""
    deadline = time.monotonic() + ANSWER_SECONDS
    body = bytearray()
    while chunk := response.read1(CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_NODE_ANSWER_BYTES:
            raise ValueError(f"its answer has more than {MAX_NODE_ANSWER_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError(f"its answer took more than {ANSWER_SECONDS:g} s")
    return bytes(body)
