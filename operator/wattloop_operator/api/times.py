"""Points in time as they travel: RFC 3339 in UTC; aware datetimes in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, PlainSerializer, WithJsonSchema


def to_text(moment: datetime) -> str:
    """RFC 3339 in UTC, with microseconds only where there are any.

    Example:
        >>> to_text(datetime(2026, 3, 1, 12, tzinfo=UTC))
        '2026-03-01T12:00:00Z'
    """
    utc = moment.astimezone(UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="microseconds" if utc.microsecond else "seconds") + "Z"


Time = Annotated[
    AwareDatetime,
    PlainSerializer(to_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 40}),
]
"""An aware datetime, on the wire as 2026-03-01T12:00:00Z."""
