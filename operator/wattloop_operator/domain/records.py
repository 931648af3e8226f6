"""Records of the store, as values.

They are validated on creation, so that the database contains only valid values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, Field, InstanceOf
from pydantic.dataclasses import dataclass

from wattloop.wire.environment import RunTarget
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.batch_size import MAX_PARAMETER_CHARACTERS, MAX_PARAMETERS
from wattloop_operator.api.curve_field import MAX_CURVE_POINTS
from wattloop_operator.api.objective import Direction
from wattloop_operator.api.training_recurrence import IMAGE_DIGEST_PATTERN
from wattloop_operator.domain.names import slot_in_name
from wattloop_operator.domain.pipeline_result import PipelineResult
from wattloop_operator.domain.record_fields import (
    LIMIT,
    NAME,
    RECORD,
    Amount,
    Count,
    Index,
    Name,
    OptionalAmount,
    OptionalIndex,
    OptionalName,
    OptionalSigned,
    OptionalTime,
    PositiveAmount,
    StoredRecord,
    Text,
    Time,
)
from wattloop_planner.metric_curve import MetricCurve

# Of a job, in the store: an attempt an hour for more than two years. Older ones are deleted.
MAX_OBSERVATIONS_OF_JOB = 20_000
# In the process, of all jobs; more are computed again.
MAX_SHARED_TARGETS = 1024
RESULTS = tuple(sorted(result.value for result in Result))
DIRECTIONS = tuple(sorted(direction.value for direction in Direction))

Argument = TypeVar("Argument")
Value = TypeVar("Value")


def _bounded(curve: MetricCurve | None) -> MetricCurve | None:
    """A curve of a bounded number of points that a status can state."""
    if curve is None:
        return None
    if len(curve.epochs) > MAX_CURVE_POINTS or not all(abs(each) < LIMIT for each in curve.epochs + curve.metrics):
        raise ValueError("too many points, or too large numbers")
    return curve


def _by_rising_names(parameters: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    names = [name for name, _ in parameters]
    if names != sorted(set(names)):
        raise ValueError("names that do not rise")
    return parameters


ResultName = Annotated[str, Field(pattern=rf"^({'|'.join(RESULTS)})$", description=f"one of {', '.join(RESULTS)}")]
DirectionName = Annotated[
    str, Field(pattern=rf"^({'|'.join(DIRECTIONS)})$", description=f"one of {', '.join(DIRECTIONS)}")
]
Threshold = Annotated[float, Field(description="a finite number")]
ImageDigest = Annotated[
    str | None, Field(pattern=IMAGE_DIGEST_PATTERN, description="a digest such as sha256:… with 64 hexadecimal digits")
]
Curve = Annotated[
    InstanceOf[MetricCurve] | None,
    AfterValidator(_bounded),
    Field(
        description="pairs [epochs,metric] of finite numbers between -1e15 and 1e15, with rising epochs above 0, "
        f"at most {MAX_CURVE_POINTS}"
    ),
]
ParameterText = Annotated[str, Field(pattern=NAME, max_length=MAX_PARAMETER_CHARACTERS)]
Parameters = Annotated[
    tuple[tuple[ParameterText, ParameterText], ...],
    AfterValidator(_by_rising_names),
    Field(
        max_length=MAX_PARAMETERS, description=f"at most {MAX_PARAMETERS} names, each with a text as value, in order"
    ),
]
Pipeline = Annotated[PipelineResult | None, Field(description="an object with a mode, and finite numbers")]


@dataclass(frozen=True, config=RECORD)
class ObservationRecord(StoredRecord):
    """Decision, usage and result of one attempt. Its key is (job_uid, recurrence, attempt).

    The cost is not stored. It follows from energy, time and maximum power for any η, so that a
    changed η applies to the whole history.

    Attributes:
        job_uid: UID of the RecurringTrainingJob. A job that is deleted and created again has
            another one.
        namespace: Its namespace.
        job_name: Its name.
        recurrence: Index of the recurrence, from 0.
        attempt: Index of the attempt within it, from 0.
        recurrence_name: Name of the TrainingRecurrence object.
        batch_size: The chosen batch size.
        power_limit_watts: The power limit of each GPU; None if it was not changed.
        result: How the attempt ended, one of `RESULTS`.
        epochs: Epochs run; a fraction if it ended during an epoch.
        metric: The last reported value of the target metric; None if there is none.
        energy_joules: Energy of all GPUs over the attempt.
        time_seconds: Duration of the attempt.
        max_power_watts: Sum of the maximum power limits of its GPUs; 0 if it never had any.
        gpu_product: Product name of its GPUs; empty if it never had any.
        gpu_count: Number of GPUs it ran on.
        epoch_energy_joules: Energy of one epoch at the chosen limit; None if not known.
        epoch_time_seconds: Duration of one epoch at the chosen limit; None if not known.
        attribution: Whether the energy is this attempt's alone: a value of `Attribution`.
        decision_kind: Why the batch size was chosen, as one word.
        reason: Why it was chosen, as a sentence.
        scheduled_at: When the recurrence was due (with a time zone; stored in UTC).
        finished_at: When the attempt ended (with a time zone; stored in UTC).
        target_metric: Metric of its target.
        target_direction: A value of `Direction`.
        target_threshold: The value to reach.
        target_evaluations: Number of consecutive evaluations that must meet the threshold.
        template_digest: Digest of the job's template that it was decided with; None if not known.
        image_digest: Digest of the image that it ran; None if it is not known.
        curve: Evaluations of the target metric; None if there were none, or if they are not known.
        parameters: Values of the further parameters, by rising names; empty if it had none.
        start_up_energy_joules: Part of its energy that was used before its epochs; None if not known.
        start_up_time_seconds: Part of its time before its epochs; None if not known.
        pipeline: What its frequency plan did; None if its ranks did not register as a pipeline.
        probe_trials: Number of trials of its probes; None if it did not probe.
        probe_energy_joules: Part of its energy that these trials used; None if it did not probe.
        probe_time_seconds: Part of its time likewise.
        measures_power_limits: Whether it was to measure power limits; None if not known.
        resumed: Whether it went on from what an earlier attempt had trained; None if not known.

    Raises:
        InputError: A value is invalid (negative energy, NaN, an unknown result, a time without
            zone, …).
    """

    source: ClassVar[str] = "observation {namespace}/{recurrence_name}"

    job_uid: Name
    namespace: Name
    job_name: Name
    recurrence: Index
    attempt: Index
    recurrence_name: Name
    batch_size: Count
    power_limit_watts: OptionalAmount
    result: ResultName
    epochs: Amount
    metric: OptionalSigned
    energy_joules: Amount
    time_seconds: Amount
    max_power_watts: Amount
    gpu_product: Text
    gpu_count: Index
    epoch_energy_joules: OptionalAmount
    epoch_time_seconds: OptionalAmount
    attribution: Text
    decision_kind: Text
    reason: Text
    scheduled_at: Time
    finished_at: Time
    target_metric: Name
    target_direction: DirectionName
    target_threshold: Threshold
    target_evaluations: Count
    template_digest: OptionalName = None
    image_digest: ImageDigest = None
    curve: Curve = None
    parameters: Parameters = ()
    start_up_energy_joules: OptionalAmount = None
    start_up_time_seconds: OptionalAmount = None
    pipeline: Pipeline = None
    probe_trials: OptionalIndex = None
    probe_energy_joules: OptionalAmount = None
    probe_time_seconds: OptionalAmount = None
    measures_power_limits: bool | None = None
    resumed: bool | None = None

    @functools.cached_property
    def derived(self) -> dict[Callable[..., Any], Any]:
        """Values that are computed from the record once; see `once_per_record`."""
        return {}

    @property
    def slot(self) -> str:
        """The slot of its recurrence."""
        return slot_in_name(self.job_name, self.recurrence_name)

    @property
    def order(self) -> tuple[int, int]:
        """Index of the recurrence and of the attempt, by which attempts are ordered."""
        return self.recurrence, self.attempt

    @functools.cached_property
    def target(self) -> RunTarget:
        """Its target."""
        return _shared_target(self.target_metric, self.target_direction, self.target_threshold, self.target_evaluations)


@functools.lru_cache(MAX_SHARED_TARGETS)
def _shared_target(metric: str, direction: str, threshold: float, evaluations: int) -> RunTarget:
    """A target; the thousands of records of a job have the same one."""
    return RunTarget(metric, threshold, direction == Direction.MAXIMIZE.value, evaluations)


def once_per_record(
    function: Callable[[ObservationRecord, Argument], Value],
) -> Callable[[ObservationRecord, Argument], Value]:
    """A decorator of a pure function of a record and an argument; the record keeps the value for the latest argument.

    Records outlive snapshots, so what follows from each of a thousand records is not computed again
    for each decision, and is the same object in each.
    """

    @functools.wraps(function)
    def derive(record: ObservationRecord, argument: Argument, /) -> Value:
        known = record.derived.get(function)
        if known is None or known[0] != argument:
            known = record.derived[function] = argument, function(record, argument)
        value: Value = known[1]
        return value

    return derive


@dataclass(frozen=True, config=RECORD)
class PowerProfileKey(StoredRecord):
    """What a power profile applies to: the same work on the same kind of GPUs.

    Attributes:
        job_uid: UID of the RecurringTrainingJob.
        batch_size: The batch size it was measured at.
        gpu_product: Product name of the GPUs.
        gpu_count: Number of GPUs.
        image_digest: Digest of the training image; a new image is new work. Empty if there is no
            image.

    Raises:
        InputError: A value is invalid.
    """

    source: ClassVar[str] = "power profile of job {job_uid}, batch size {batch_size}"

    job_uid: Name
    batch_size: Count
    gpu_product: Name
    gpu_count: Count
    image_digest: Text = ""


@dataclass(frozen=True, config=RECORD)
class PowerMeasurement(StoredRecord):
    """A measurement at one power limit.

    Attributes:
        power_limit_watts: The power limit of each GPU.
        energy_joules: Energy of all GPUs during the measurement.
        time_seconds: Duration of the measurement.
        epochs: Length of the measurement in epochs, so that measurements are comparable.

    Raises:
        InputError: A value is not positive (energy may be 0) or not finite.
    """

    source: ClassVar[str] = "power measurement at {power_limit_watts} W"

    power_limit_watts: PositiveAmount
    energy_joules: Amount
    time_seconds: PositiveAmount
    epochs: PositiveAmount


@dataclass(frozen=True)
class PowerProfileRecord:
    """A power profile: its key and its measurements, by rising limit."""

    key: PowerProfileKey
    measurements: tuple[PowerMeasurement, ...]


@dataclass(frozen=True, config=RECORD)
class PodEnergy(StoredRecord):
    """Energy that one container of an attempt's pod used on one GPU, reported by a node agent.

    Its key is (ledger, pod_uid, container, gpu_uuid). Numbers are cumulative: of two records with
    the same key the higher one counts. Records of different ledgers add up.

    Attributes:
        job_uid: UID of the RecurringTrainingJob.
        recurrence: Index of the recurrence, from 0.
        attempt: Index of the attempt within it, from 0.
        node: Node of the pod.
        ledger: Id of the agent's ledger.
        pod_uid: UID of the pod.
        pod: Its name.
        container: The container with the GPU.
        gpu_uuid: UUID of the GPU.
        gpu_product: Its model; empty if not known.
        shared: Whether other pods could use the GPU too.
        energy_millijoules: Energy since the GPU was allocated to the pod.
        uncertainty_millijoules: Bound on the error of the energy.
        start_time_seconds: The agent's clock when the GPU was allocated.
        time_seconds: The same clock at the latest reading.
        ended: Whether the pod has released the GPU.
        reported_at: When the agent last reported it (with a time zone; stored in UTC).
        measured_at: When the latest reading was taken, by the operator's clock; None if not known.
        max_power_limit_watts: The highest power limit that the GPU accepts; None if not known.

    Raises:
        InputError: A value is invalid.
    """

    source: ClassVar[str] = "energy of pod {pod}, container {container}, GPU {gpu_uuid}"

    job_uid: Name
    recurrence: Index
    attempt: Index
    node: Name
    ledger: Name
    pod_uid: Name
    pod: Name
    container: Name
    gpu_uuid: Name
    gpu_product: Text
    shared: bool
    energy_millijoules: Index
    uncertainty_millijoules: Index
    start_time_seconds: Amount
    time_seconds: Amount
    ended: bool
    reported_at: Time
    measured_at: OptionalTime = None
    max_power_limit_watts: OptionalAmount = None


@dataclass(frozen=True, config=RECORD)
class LateUsage(StoredRecord):
    """Usage of an attempt that the agents reported after its outcome was written.

    Totals include it. Learning uses the usage at the outcome.

    Attributes:
        job_uid: UID of the RecurringTrainingJob.
        recurrence: Index of the recurrence, from 0.
        attempt: Index of the attempt within it, from 0.
        energy_joules: Energy of all its GPUs.
        time_seconds: How long it had the GPUs.

    Raises:
        InputError: A value is invalid.
    """

    source: ClassVar[str] = "late usage of job {job_uid}, recurrence {recurrence}, attempt {attempt}"

    job_uid: Name
    recurrence: Index
    attempt: Index
    energy_joules: Amount
    time_seconds: Amount
