"""The rows of pipelines as compressed JSON, and back."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from wattloop.errors import OperationError
from wattloop.pipeline.plan_messages import RankRegistration, RankReport
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    IssuedDirective,
    PipelineProfileKey,
    PipelineRank,
    PipelineState,
    PlanChoice,
    Straggler,
)

# A frontier of thousands of instructions has a few megabytes; the bound protects against a damaged row.
MAX_BODY_BYTES = 256 * 1024 * 1024
COMPRESSION_LEVEL = 1

Row = TypeVar("Row")


@dataclass(frozen=True)
class PipelineRow:
    """What the row of a pipeline holds beside its key."""

    directive: IssuedDirective
    straggler: Straggler | None
    choice: PlanChoice
    enabled: bool
    profile: PipelineProfileKey | None = None
    profile_keys: tuple[PipelineProfileKey, ...] = ()

    @staticmethod
    def of(state: PipelineState) -> PipelineRow:
        """The row of a state."""
        profile = None if state.profile is None else state.profile.key
        return PipelineRow(state.directive, state.straggler, state.choice, state.enabled, profile, state.profile_keys)


@dataclass(frozen=True)
class Part:
    """What ranks of the same pipeline rank have in common."""

    instructions: tuple[str, ...]
    clocks_megahertz: tuple[int, ...]


@dataclass(frozen=True)
class RankRow:
    """What the row of a rank holds; the registration without instructions and clocks, which the part has."""

    registration: RankRegistration
    registered_at: datetime
    heard_at: datetime
    report: RankReport | None
    recent_iteration_seconds: float | None
    refused_at: datetime | None = None


def encode(value: Any) -> bytes:
    """A row's dataclass as compressed JSON."""
    return zlib.compress(_adapter(cast(Any, type(value))).dump_json(value), COMPRESSION_LEVEL)


def decode(kind: type[Row], body: bytes) -> Row:
    """Read what `encode` wrote.

    Raises:
        OperationError: The row is damaged.
    """
    try:
        decompressor = zlib.decompressobj()
        text = decompressor.decompress(body, MAX_BODY_BYTES)
        row: Row = _adapter(cast(Any, kind)).validate_json(text)
    except (zlib.error, ValidationError) as error:
        raise OperationError(f"a stored {kind.__name__} is damaged: {' '.join(str(error).split())[:200]}") from None
    return row


def part_of(registration: RankRegistration) -> Part:
    """The part of a registration that other ranks share."""
    return Part(registration.instructions, registration.clocks_megahertz)


def part_digest(body: bytes) -> str:
    """The key of a part."""
    return hashlib.sha256(body).hexdigest()[:32]


def rank_row(rank: PipelineRank) -> RankRow:
    """The row of a rank."""
    slim = replace(rank.registration, instructions=(), clocks_megahertz=())
    return RankRow(slim, rank.registered_at, rank.heard_at, rank.report, rank.recent_iteration_seconds, rank.refused_at)


def rank_of(row: RankRow, part: Part) -> PipelineRank:
    """The rank of a row and its part."""
    registration = replace(row.registration, instructions=part.instructions, clocks_megahertz=part.clocks_megahertz)
    return PipelineRank(
        registration, row.registered_at, row.heard_at, row.report, row.recent_iteration_seconds, row.refused_at
    )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
