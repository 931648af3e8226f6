"""The operator's reporting API, as an agent calls it: one report, one answer, over HTTP or HTTPS."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from wattloop.errors import OperationError
from wattloop.message_fields import MessageError
from wattloop.node_energy import MAX_NODE_ANSWER_BYTES, NodeAnswer, NodeReport

TIMEOUT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
CHUNK_BYTES = 64 * 1024
MAX_REFUSAL_BYTES = 2048


@dataclass(frozen=True)
class OperatorApi:
    """Where the operator takes reports.

    Attributes:
        url: Its address, http://… or https://…
        token_file: The agent's token; read for each report, since Kubernetes rotates it.
        certificate_authority_file: Certificates that the operator is checked against, read for each report, too; None:
            the system's.
    """

    url: str
    token_file: Path
    certificate_authority_file: Path | None = None

    def send(self, report: NodeReport) -> NodeAnswer:
        """Deliver a report.

        Raises:
            OperationError: It was not delivered, or not taken in, or the answer is none.
        """
        try:
            status, body = self._post(report)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise OperationError(f"{self.url}: {str(error) or type(error).__name__}") from error
        if status != http.client.OK:
            said = body[:MAX_REFUSAL_BYTES].decode("utf-8", "replace")
            raise OperationError(f"{self.url}: refused with HTTP {status}: {said}")
        try:
            return NodeAnswer.from_json(json.loads(body))
        except (MessageError, ValueError, RecursionError) as error:
            raise OperationError(f"{self.url}: answered with what is no answer: {error}") from error

    def _post(self, report: NodeReport) -> tuple[int, bytes]:
        # A connection a report: the certificates may be others by now, and no redirect or proxy is followed, so the
        # token goes to the operator and to nobody else.
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
    """The body, of a server that neither sends for ever nor for ever sends."""
    deadline = time.monotonic() + ANSWER_SECONDS
    body = bytearray()
    while chunk := response.read1(CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_NODE_ANSWER_BYTES:
            raise ValueError(f"its answer has more than {MAX_NODE_ANSWER_BYTES} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError(f"its answer took more than {ANSWER_SECONDS:g} s")
    return bytes(body)
