"""The operator's API for node reports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit

from wattloop.errors import OperationError
from wattloop.wire.message_fields import MessageError
from wattloop.wire.node_energy import MAX_NODE_ANSWER_BYTES, NodeAnswer, NodeReport
from wattloop.wire.operator_api import REQUEST_ERRORS, OperatorApi, describe_error

TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class NodeReportApi:
    """The operator's API for node reports.

    Attributes:
        url: URL, http://… or https://…
        token_file: File of the agent's token.
        certificate_authority_file: Certificates that verify the operator; None for those of the system.
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
        api = OperatorApi(self.url, str(self.token_file), str(self.certificate_authority_file or ""))
        path = f"/v1/nodes/{quote(report.node, safe='')}/energy"
        try:
            return NodeAnswer.from_json(
                api.send("POST", path, report.to_json(), TIMEOUT_SECONDS, MAX_NODE_ANSWER_BYTES)
            )
        except HTTPError as error:
            raise OperationError(f"{self.url}: refused with {describe_error(error)}") from error
        except (MessageError, json.JSONDecodeError, RecursionError) as error:
            raise OperationError(f"{self.url}: invalid answer: {error}") from error
        except REQUEST_ERRORS as error:
            raise OperationError(f"{self.url}: {describe_error(error)}") from error
