"""Writes the OpenAPI description of the reporting API: `python -m wattloop_operator.reporting.openapi [--check]`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from wattloop_operator.api import generated
from wattloop_operator.api.progress import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.service import ReportService

FILE = "reporting-api.json"


class _Nowhere:
    """Stands where a description needs no answer: nobody asks it anything."""

    def admit(self, token: str, namespace: str, name: str) -> None:
        """See `Gate`."""
        raise NotImplementedError

    def read(self, namespace: str, name: str) -> TrainingRecurrence | None:
        """See `ProgressBook`."""
        raise NotImplementedError

    def write(self, recurrence: TrainingRecurrence, progress: Progress) -> None:
        """See `ProgressBook`."""
        raise NotImplementedError


def rendered() -> dict[str, str]:
    """The text of the file, by file name."""
    nowhere = _Nowhere()
    document = create_app(ReportService(nowhere, nowhere)).openapi()
    return {FILE: json.dumps(document, indent=2, ensure_ascii=False) + "\n"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or with --check only compare it; returns the exit code."""
    return generated.main(
        arguments,
        what="the OpenAPI description of the reporting API",
        folder="docs",
        pattern=FILE,
        files=rendered(),
    )


if __name__ == "__main__":
    sys.exit(main())
