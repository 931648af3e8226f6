"""The archive in a FrequencyPlan: all plans along a frontier, as base64."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from wattloop.errors import InputError

if TYPE_CHECKING:
    from wattloop_planner.frequency.files.archive import PlanArchive

# An archive of a manifest is small; the operator reads it in its own process.
MAX_ARCHIVE_BYTES = 16 * 1024 * 1024
EXPECTED = "the file plans.json.gz of `wattloop plan` as base64; `wattloop plan --manifest` writes it"


def decode_archive(text: str) -> PlanArchive:
    """The plans of ``spec.archive``.

    Raises:
        InputError: The text is not base64, or the archive is invalid or too large.
    """
    # Deferred, because the planner's imports take longer than checking a manifest.
    from wattloop_planner.frequency.files.archive import read_archive  # noqa: PLC0415

    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InputError("spec.archive", f"text that is not base64 ({error})", EXPECTED) from error
    return read_archive(data, "spec.archive", MAX_ARCHIVE_BYTES)
