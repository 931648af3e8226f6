"""The OpenAPI description of the reporting API (docs/reference/reporting-api.json)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from wattloop_operator.reporting.app import create_app


def rendered() -> str:
    """Return the text of the description."""
    # The routes keep the services, and call none of them while they are described.
    services: Any = SimpleNamespace(limits=None)
    document = create_app(services, services, services).openapi()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
