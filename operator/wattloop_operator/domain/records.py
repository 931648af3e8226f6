"""What the store keeps, as values: checked when made, so that what is in the database is always sound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from wattloop_operator.domain.column_check import ColumnCheck

# How an attempt ended: the values of TrainingRecurrence's status.result.
RESULTS = frozenset(
    {
        "Reached",
        "Stopped",
        "Exhausted",
        "Crashed",
        "DeadlineExceeded",
        "MissingMetric",
        "Disrupted",
        "Cancelled",
        "Refused",
    }
)


@dataclass(frozen=True)
class ObservationRecord:
    """What one attempt decided, cost and came to; its key is (job_uid, recurrence, attempt).

    The cost itself is not kept: it follows from energy, time and maximum power at any η, so that a changed η ranks the
    whole history anew.

    Attributes:
        job_uid: Unique id of the RecurringTrainingJob: a job deleted and made again under its name is another one.
        namespace: Its namespace.
        job_name: Its name.
        recurrence: Index of the recurrence, from 0.
        attempt: Index of the attempt within it, from 0.
        recurrence_name: Name of the TrainingRecurrence object.
        batch_size: The batch size that was decided.
        power_limit_watts: The limit that was decided for each GPU; None: left as it was.
        result: How the attempt ended, one of `RESULTS`.
        epochs: Epochs run, a decimal where it ended inside one.
        metric: The last reported value of the target metric; None: none was reported.
        energy_joules: Energy of all GPUs over the attempt.
        time_seconds: Duration of the attempt.
        max_power_watts: Sum of the maximum power limits of its GPUs; 0 where it never had any.
        gpu_product: Product name of its GPUs; empty where it never had any.
        gpu_count: How many GPUs it ran on.
        epoch_energy_joules: Energy of one epoch at the chosen limit; None: not known.
        epoch_time_seconds: Duration of one epoch at the chosen limit; None: not known.
        attribution: How surely the energy is this attempt's alone, in the agent's word.
        decision_kind: Why the batch size was chosen, in one word.
        reason: Why it was chosen, in one sentence.
        scheduled_at: When the recurrence was due (with a time zone; kept in UTC).
        finished_at: When the attempt ended (with a time zone; kept in UTC).

    Raises:
        InputError: A value cannot be (negative energy, NaN, an unknown result, a time without zone, …).
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

    def __post_init__(self) -> None:
        check = ColumnCheck(f"observation {self.namespace}/{self.recurrence_name}")
        check.texts(self, "job_uid", "namespace", "job_name", "recurrence_name")
        check.texts(self, "gpu_product", "attribution", "decision_kind", "reason", may_be_empty=True)
        check.integers(self, "recurrence", "attempt", "gpu_count", least=0)
        check.integers(self, "batch_size", least=1)
        check.amounts(self, "epochs", "energy_joules", "time_seconds", "max_power_watts")
        check.amounts(self, "power_limit_watts", "epoch_energy_joules", "epoch_time_seconds", optional=True)
        if self.metric is not None and not math.isfinite(self.metric):
            raise check.error("metric", self.metric, "a finite number, or None where no metric was reported")
        if self.result not in RESULTS:
            raise check.error("result", self.result, f"one of {', '.join(sorted(RESULTS))}")
        for column in ("scheduled_at", "finished_at"):
            object.__setattr__(self, column, check.moment(self, column))


@dataclass(frozen=True)
class ProfileKey:
    """What a power profile holds for: the same work on the same kind of GPUs.

    Attributes:
        job_uid: Unique id of the RecurringTrainingJob.
        batch_size: The batch size it was measured at.
        gpu_product: Product name of the GPUs.
        gpu_count: How many there were.
        image_digest: Digest of the training image; a new image is new work. Empty where there is no image.

    Raises:
        InputError: A value cannot be.
    """

    job_uid: str
    batch_size: int
    gpu_product: str
    gpu_count: int
    image_digest: str = ""

    def __post_init__(self) -> None:
        check = ColumnCheck(f"power profile of job {self.job_uid}, batch size {self.batch_size}")
        check.texts(self, "job_uid", "gpu_product")
        check.texts(self, "image_digest", may_be_empty=True)
        check.integers(self, "batch_size", "gpu_count", least=1)


@dataclass(frozen=True)
class PowerMeasurement:
    """What was measured at one power limit.

    Attributes:
        power_limit_watts: The limit held on each GPU.
        energy_joules: Energy of all GPUs over the measured span.
        time_seconds: Duration of the span.
        epochs: How much of the training the span was, in epochs, so that spans compare.

    Raises:
        InputError: A value is not positive (energy may be 0) or not finite.
    """

    power_limit_watts: float
    energy_joules: float
    time_seconds: float
    epochs: float

    def __post_init__(self) -> None:
        check = ColumnCheck(f"power measurement at {self.power_limit_watts} W")
        check.amounts(self, "power_limit_watts", "time_seconds", "epochs", positive=True)
        check.amounts(self, "energy_joules")


@dataclass(frozen=True)
class PowerProfileRecord:
    """A whole power profile: its key and its measurements by rising limit."""

    key: ProfileKey
    measurements: tuple[PowerMeasurement, ...]


@dataclass(frozen=True)
class PodEnergy:
    """What one container of an attempt's pod has used of one GPU, in the word of the agent of its node.

    Its key is (ledger, pod_uid, container, gpu_uuid). Numbers are cumulative: of two with one key the higher counts,
    and those of different ledgers add up.

    Attributes:
        job_uid: Unique id of the RecurringTrainingJob.
        recurrence: Index of the recurrence, from 0.
        attempt: Index of the attempt within it, from 0.
        node: The node that the pod ran on.
        ledger: The agent's ledger that the numbers are of.
        pod_uid: Unique id of the pod.
        pod: Its name.
        container: The container that was given the GPU.
        gpu_uuid: Which GPU.
        gpu_product: Its model; empty: not known.
        shared: Whether others could use the GPU too.
        energy_millijoules: Used since the pod was given the GPU.
        uncertainty_millijoules: How far that may be off.
        start_time_seconds: The agent's clock when the pod was given the GPU.
        time_seconds: The same clock at the newest reading.
        ended: Whether the pod has given the GPU back.
        reported_at: When the operator heard of it last (with a time zone; kept in UTC).

    Raises:
        InputError: A value cannot be.
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

    def __post_init__(self) -> None:
        check = ColumnCheck(f"energy of pod {self.pod}, container {self.container}, GPU {self.gpu_uuid}")
        check.texts(self, "job_uid", "node", "ledger", "pod_uid", "pod", "container", "gpu_uuid")
        check.texts(self, "gpu_product", may_be_empty=True)
        check.integers(self, "recurrence", "attempt", "energy_millijoules", "uncertainty_millijoules", least=0)
        check.amounts(self, "start_time_seconds", "time_seconds")
        object.__setattr__(self, "reported_at", check.moment(self, "reported_at"))


@dataclass(frozen=True)
class LateUsage:
    """What an attempt used, as the agents told after its outcome was written: for sums, learning knows the first.

    Attributes:
        job_uid: Unique id of the RecurringTrainingJob.
        recurrence: Index of the recurrence, from 0.
        attempt: Index of the attempt within it, from 0.
        energy_joules: Energy of all its GPUs.
        time_seconds: How long it had them.

    Raises:
        InputError: A value cannot be.
    """

    job_uid: str
    recurrence: int
    attempt: int
    energy_joules: float
    time_seconds: float

    def __post_init__(self) -> None:
        check = ColumnCheck(f"amendment of job {self.job_uid}, recurrence {self.recurrence}, attempt {self.attempt}")
        check.texts(self, "job_uid")
        check.integers(self, "recurrence", "attempt", least=0)
        check.amounts(self, "energy_joules", "time_seconds")
