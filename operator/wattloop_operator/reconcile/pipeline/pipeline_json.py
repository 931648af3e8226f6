"""What is kept of a pipeline, as compressed JSON: the rows of the store, and what its planner reads and writes."""

import hashlib
import zlib
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from wattloop.errors import OperationError
from wattloop.pipeline.plan_messages import RankRegistration
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineProfile, PipelineRank, PipelineState

# A frontier of thousands of instructions has a few megabytes; the bound protects against a damaged row.
MAX_BODY_BYTES = 256 * 1024 * 1024
COMPRESSION_LEVEL = 1

Row = TypeVar("Row")


@dataclass(frozen=True)
class Part:
    """What ranks of the same pipeline rank have in common, stored once."""

    instructions: tuple[str, ...]
    clocks_megahertz: tuple[int, ...]


def encode(value: Any) -> bytes:
    """A dataclass as compressed JSON."""
    return zlib.compress(_adapter(cast(Any, type(value))).dump_json(value), COMPRESSION_LEVEL)


def decode(kind: type[Row], body: bytes) -> Row:
    """Read what `encode` wrote.

    Raises:
        OperationError: It is damaged.
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


def without_part(rank: PipelineRank) -> PipelineRank:
    """A rank as its row holds it."""
    return with_part(rank, Part((), ()))


def with_part(rank: PipelineRank, part: Part) -> PipelineRank:
    """The rank of a row and its part."""
    registration = replace(rank.registration, instructions=part.instructions, clocks_megahertz=part.clocks_megahertz)
    return replace(rank, registration=registration)


def without_rows(state: PipelineState) -> PipelineState:
    """A state as its row holds it: without what has rows of its own, or belongs to the job."""
    profile = None if state.profile is None else PipelineProfile(state.profile.key)
    return replace(state, ranks={}, profile=profile, frontier=None, job_plan=replace(state.job_plan, given=None))


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
