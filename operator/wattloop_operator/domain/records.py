"""Records of the store, as values.

They are validated on creation, so that the database contains only valid values.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.batch_size import MAX_PARAMETER_CHARACTERS, MAX_PARAMETERS
from wattloop_operator.api.curve_field import MAX_CURVE_POINTS
from wattloop_operator.api.objective import Direction
from wattloop_operator.api.training_recurrence import IMAGE_DIGEST_PATTERN
from wattloop_operator.domain.column_check import ColumnCheck, is_storable
from wattloop_operator.domain.pipeline_result import PipelineResult
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import ParameterValues

# Of a job, in the store: an attempt an hour for more than two years. Older ones are deleted.
MAX_OBSERVATIONS_OF_JOB = 20_000
RESULTS = frozenset(result.value for result in Result)
DIRECTIONS = frozenset(direction.value for direction in Direction)
TARGET_COLUMNS = ("target_metric", "target_direction", "target_threshold", "target_evaluations")

TargetValues = tuple[str | None, str | None, float | None, int | None]
Argument = TypeVar("Argument")
Value = TypeVar("Value")


@dataclass(frozen=True)
class ObservationRecord:
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
        template_digest: Digest of the job's template that it was decided with; None if not known.
        target_metric: Metric of its target; None, as in the next three, if the target is not known.
        target_direction: A value of `Direction`.
        target_threshold: The value to reach.
        target_evaluations: Number of consecutive evaluations that must meet the threshold.
        image_digest: Digest of the image that it ran; None if it is not known.
        curve: Evaluations of the target metric; None if there were none, or if they are not known.
        parameters: Values of the further parameters, by rising names; empty if it had none.
        start_up_energy_joules: Part of its energy that was used before its epochs; None if not known.
        start_up_time_seconds: Part of its time before its epochs; None if not known.
        pipeline: What its frequency plan did; None if its ranks did not register as a pipeline.

    Raises:
        InputError: A value is invalid (negative energy, NaN, an unknown result, a time without
            zone, …).
    """

    job_uid: str
    namespace: str
    job_name: str
    recurrence: int
    attempt: int
    recurrence_name: str
    batch_size: int
    power_limit_watts: float | None
    result: str
    epochs: float
    metric: float | None
    energy_joules: float
    time_seconds: float
    max_power_watts: float
    gpu_product: str
    gpu_count: int
    epoch_energy_joules: float | None
    epoch_time_seconds: float | None
    attribution: str
    decision_kind: str
    reason: str
    scheduled_at: datetime
    finished_at: datetime
    template_digest: str | None = None
    target_metric: str | None = None
    target_direction: str | None = None
    target_threshold: float | None = None
    target_evaluations: int | None = None
    image_digest: str | None = None
    curve: MetricCurve | None = None
    parameters: ParameterValues = ()
    start_up_energy_joules: float | None = None
    start_up_time_seconds: float | None = None
    pipeline: PipelineResult | None = None

    def __post_init__(self) -> None:
        check = ColumnCheck(f"observation {self.namespace}/{self.recurrence_name}")
        check.strings(self, "job_uid", "namespace", "job_name", "recurrence_name")
        check.strings(self, "gpu_product", "attribution", "decision_kind", "reason", may_be_empty=True)
        check.integers(self, "recurrence", "attempt", "gpu_count", minimum=0)
        check.integers(self, "batch_size", minimum=1)
        check.numbers(self, "epochs", "energy_joules", "time_seconds", "max_power_watts")
        check.numbers(self, "power_limit_watts", "epoch_energy_joules", "epoch_time_seconds", optional=True)
        check.numbers(self, "start_up_energy_joules", "start_up_time_seconds", optional=True)
        if self.metric is not None:
            check.signed_number("metric", self.metric)
        if self.template_digest is not None:
            check.strings(self, "template_digest")
        if self.image_digest is not None and not re.fullmatch(IMAGE_DIGEST_PATTERN, self.image_digest):
            raise check.error("image_digest", self.image_digest, "a digest such as sha256:… with 64 hexadecimal digits")
        if self.target is not None:
            self._check_target(check)
        if self.curve is not None:
            self._check_curve(check)
        if not _are_parameters(self.parameters):
            raise check.error("parameters", self.parameters, "at most 8 names, each with a text as value, in order")
        if self.pipeline is not None and not isinstance(self.pipeline, PipelineResult):
            raise check.error("pipeline", self.pipeline, "an object with a mode, and finite numbers")
        if self.result not in RESULTS:
            raise check.error("result", self.result, f"one of {', '.join(sorted(RESULTS))}")
        for column in ("scheduled_at", "finished_at"):
            object.__setattr__(self, column, check.timestamp(self, column))

    @functools.cached_property
    def derived(self) -> dict[Callable[..., Any], Any]:
        """Values that are computed from the record once; see `once_per_record`."""
        return {}

    @functools.cached_property
    def target(self) -> TargetValues | None:
        """Metric, direction, threshold and evaluations of its target; None if the target is not known."""
        values = (self.target_metric, self.target_direction, self.target_threshold, self.target_evaluations)
        return None if values == (None, None, None, None) else values

    def _check_curve(self, check: ColumnCheck) -> None:
        # The database may contain anything.
        if not isinstance(self.curve, MetricCurve):
            raise check.error(
                "curve", self.curve, "pairs [epochs,metric] of finite numbers, with rising epochs above 0"
            )
        if len(self.curve.epochs) > MAX_CURVE_POINTS:
            raise check.error("curve", f"{len(self.curve.epochs)} points", f"at most {MAX_CURVE_POINTS}")
        for value in (*self.curve.epochs, *self.curve.metrics):
            check.signed_number("curve", value)

    def _check_target(self, check: ColumnCheck) -> None:
        for column, value in zip(TARGET_COLUMNS, self.target or (), strict=True):
            if value is None:
                raise check.error(column, None, "a value in each of the target's columns, or in none")
        check.strings(self, "target_metric")
        check.integers(self, "target_evaluations", minimum=1)
        if self.target_direction not in DIRECTIONS:
            raise check.error("target_direction", self.target_direction, f"one of {', '.join(sorted(DIRECTIONS))}")
        if not math.isfinite(self.target_threshold or 0.0):
            raise check.error("target_threshold", self.target_threshold, "a finite number")


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


def _are_parameters(parameters: object) -> bool:
    """Whether these are values of parameters, by rising names."""
    if not isinstance(parameters, tuple) or len(parameters) > MAX_PARAMETERS:
        return False
    texts = [text for pair in parameters for text in pair]
    valid = all(
        isinstance(text, str) and 0 < len(text) <= MAX_PARAMETER_CHARACTERS and is_storable(text) for text in texts
    )
    names = [pair[0] for pair in parameters if len(pair) == 2]
    return valid and len(names) == len(parameters) and names == sorted(set(names))


@dataclass(frozen=True)
class ProfileKey:
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

    job_uid: str
    batch_size: int
    gpu_product: str
    gpu_count: int
    image_digest: str = ""

    def __post_init__(self) -> None:
        check = ColumnCheck(f"power profile of job {self.job_uid}, batch size {self.batch_size}")
        check.strings(self, "job_uid", "gpu_product")
        check.strings(self, "image_digest", may_be_empty=True)
        check.integers(self, "batch_size", "gpu_count", minimum=1)


@dataclass(frozen=True)
class PowerMeasurement:
    """A measurement at one power limit.

    Attributes:
        power_limit_watts: The power limit of each GPU.
        energy_joules: Energy of all GPUs during the measurement.
        time_seconds: Duration of the measurement.
        epochs: Length of the measurement in epochs, so that measurements are comparable.

    Raises:
        InputError: A value is not positive (energy may be 0) or not finite.
    """

    power_limit_watts: float
    energy_joules: float
    time_seconds: float
    epochs: float

    def __post_init__(self) -> None:
        check = ColumnCheck(f"power measurement at {self.power_limit_watts} W")
        check.numbers(self, "power_limit_watts", "time_seconds", "epochs", positive=True)
        check.numbers(self, "energy_joules")


@dataclass(frozen=True)
class PowerProfileRecord:
    """A power profile: its key and its measurements, by rising limit."""

    key: ProfileKey
    measurements: tuple[PowerMeasurement, ...]


@dataclass(frozen=True)
class PodEnergy:
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

    job_uid: str
    recurrence: int
    attempt: int
    node: str
    ledger: str
    pod_uid: str
    pod: str
    container: str
    gpu_uuid: str
    gpu_product: str
    shared: bool
    energy_millijoules: int
    uncertainty_millijoules: int
    start_time_seconds: float
    time_seconds: float
    ended: bool
    reported_at: datetime
    measured_at: datetime | None = None
    max_power_limit_watts: float | None = None

    def __post_init__(self) -> None:
        check = ColumnCheck(f"energy of pod {self.pod}, container {self.container}, GPU {self.gpu_uuid}")
        check.strings(self, "job_uid", "node", "ledger", "pod_uid", "pod", "container", "gpu_uuid")
        check.strings(self, "gpu_product", may_be_empty=True)
        check.integers(self, "recurrence", "attempt", "energy_millijoules", "uncertainty_millijoules", minimum=0)
        check.numbers(self, "start_time_seconds", "time_seconds")
        check.numbers(self, "max_power_limit_watts", optional=True)
        object.__setattr__(self, "reported_at", check.timestamp(self, "reported_at"))
        if self.measured_at is not None:
            object.__setattr__(self, "measured_at", check.timestamp(self, "measured_at"))


@dataclass(frozen=True)
class LateUsage:
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

    job_uid: str
    recurrence: int
    attempt: int
    energy_joules: float
    time_seconds: float

    def __post_init__(self) -> None:
        check = ColumnCheck(f"late usage of job {self.job_uid}, recurrence {self.recurrence}, attempt {self.attempt}")
        check.strings(self, "job_uid")
        check.integers(self, "recurrence", "attempt", minimum=0)
        check.numbers(self, "energy_joules", "time_seconds")
