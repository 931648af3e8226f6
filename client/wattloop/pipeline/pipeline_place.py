"""The place of a rank in a job with data, tensor and pipeline parallelism."""

from collections.abc import Sequence
from dataclasses import dataclass

from wattloop.errors import UsageError
from wattloop.pipeline.plan_messages import MAX_PIPELINE_RANKS, MAX_STAGES
from wattloop.wire.message_fields import MessageError, String


@dataclass(frozen=True)
class PipelinePlace:
    """The place of a rank.

    Attributes:
        stages: The model stages of this rank, in ascending order; several with interleaved schedules.
        stage_count: Number of model stages.
        pipeline_rank, pipeline_parallel: Rank in its pipeline, and their number.
        data_rank, data_parallel: Rank among the data-parallel ones, and their number.
        tensor_rank, tensor_parallel: Rank among the tensor-parallel ones, and their number.
        rank: Global rank.

    Example:
        >>> place = pipeline_place(stage=2, stages=4, data_rank=1, data_parallel=2)
        >>> place.pipeline_rank, place.pipeline_parallel, place.rank
        (2, 4, 6)
        >>> pipeline_place(stage=(1, 5), stages=8, pipeline_parallel=4).pipeline_rank
        1
    """

    stages: tuple[int, ...]
    stage_count: int
    pipeline_rank: int
    pipeline_parallel: int
    data_rank: int
    data_parallel: int
    tensor_rank: int
    tensor_parallel: int
    rank: int

    @property
    def ranks(self) -> int:
        """Number of ranks of the job."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel


def pipeline_place(
    *,
    stage: int | Sequence[int],
    stages: int,
    pipeline_rank: int | None = None,
    pipeline_parallel: int | None = None,
    data_rank: int = 0,
    data_parallel: int = 1,
    tensor_rank: int = 0,
    tensor_parallel: int = 1,
    rank: int | None = None,
) -> PipelinePlace:
    """The place of a rank; what is not given follows from the stages and the degrees.

    See the arguments of `wattloop.pipeline.Pipeline`. In the global rank, tensor ranks count first, then pipeline
    ranks, then data ranks.

    Raises:
        UsageError: A number is out of its range, or they contradict each other.
    """
    require_integer("stages", stages, 1, MAX_STAGES)
    # Of a text, the characters are refused.
    given = tuple(stage) if isinstance(stage, Sequence) else (stage,)
    for each in given:
        require_integer("stage", each, 0, stages - 1)
    own = tuple(sorted(set(given)))
    if not own:
        raise UsageError("stage: found none, expected one or more")
    pipelines = max(stages // len(own), 1) if pipeline_parallel is None else pipeline_parallel
    require_integer("pipeline_parallel", pipelines, 1, stages)
    if stages % pipelines or stages // pipelines != len(own):
        raise UsageError(
            f"stage: found {len(own)} of {stages} stages with {pipelines} pipeline-parallel ranks, "
            "expected the same number of stages on each of them"
        )
    place_in_pipeline = own[0] % pipelines if pipeline_rank is None else pipeline_rank
    for name, found, degree in (
        ("pipeline", place_in_pipeline, pipelines),
        ("data", data_rank, data_parallel),
        ("tensor", tensor_rank, tensor_parallel),
    ):
        require_integer(f"{name}_parallel", degree, 1, MAX_PIPELINE_RANKS)
        require_integer(f"{name}_rank", found, 0, degree - 1)
    ranks = pipelines * data_parallel * tensor_parallel
    if ranks > MAX_PIPELINE_RANKS:
        raise UsageError(f"the product of the three degrees: found {ranks}, expected {MAX_PIPELINE_RANKS} at most")
    default = (data_rank * pipelines + place_in_pipeline) * tensor_parallel + tensor_rank
    number = default if rank is None else rank
    require_integer("rank", number, 0, ranks - 1)
    return PipelinePlace(
        own, stages, place_in_pipeline, pipelines, data_rank, data_parallel, tensor_rank, tensor_parallel, number
    )


def require_integer(name: str, found: object, minimum: int, maximum: int) -> None:
    """Check an argument.

    Raises:
        UsageError: It is no whole number in this range.
    """
    if isinstance(found, bool) or not isinstance(found, int) or not minimum <= found <= maximum:
        raise UsageError(f"{name}: found {found!r}, expected a whole number from {minimum} to {maximum}")


def require_text(name: str, found: object, max_length: int, *, min_length: int = 1) -> None:
    """Check an argument.

    Raises:
        UsageError: It is no printable ASCII text of these lengths.
    """
    try:
        String(max_length, min_length).parse(name, found)
    except MessageError as error:
        raise UsageError(str(error)) from error
