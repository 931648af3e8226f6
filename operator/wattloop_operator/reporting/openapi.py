"""Writes the OpenAPI description of the reporting API.

`python -m wattloop_operator.reporting.openapi [--check]`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from wattloop_operator.api import generated
from wattloop_operator.reporting.app import create_app

FILE = "reporting-api.json"


def rendered() -> dict[str, str]:
    """The text of each generated file, by file name."""
    # The routes keep the services, and call none of them while they are described.
    services: Any = SimpleNamespace(limits=None)
    document = create_app(services, services, services).openapi()
    return {FILE: json.dumps(document, indent=2, ensure_ascii=False) + "\n"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or with --check only compare it; returns the exit code."""
    return generated.main(
        arguments,
        description="Generates the OpenAPI description of the reporting API.",
        folder="docs",
        pattern=FILE,
        files=rendered(),
    )


if __name__ == "__main__":
    sys.exit(main())
