"""Wire forms between a training process and the reporting API: small JSON objects, the same in a pod and on a laptop.

Every report is cumulative: it repeats the first and the newest reading of each GPU's energy counter and all power-limit
measurements so far, so that a lost or repeated report changes nothing and a late one brings everything up to date.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from wattloop.message_fields import Fields, MessageError, shown

MAX_REPORT_BYTES = 64 * 1024
MAX_GPUS = 64
MAX_LIMITS = 64
MAX_UUID_CHARACTERS = 96
# As NVML writes them: GPU-<uuid>, MIG-<uuid>, and MIG-GPU-<uuid>/<GPU instance>/<compute instance> of older drivers.
GPU_UUID_PATTERN = "(GPU|MIG)-[0-9A-Fa-f-]{1,36}|MIG-GPU-[0-9A-Fa-f-]{1,36}/[0-9]{1,3}/[0-9]{1,3}"
GPU_UUID = re.compile(GPU_UUID_PATTERN)
MAX_GPU_UUID_CHARACTERS = 52
MAX_PRODUCT_CHARACTERS = 128
MAX_REASON_CHARACTERS = 2000
MAX_REFUSAL_CHARACTERS = 512
# Bounds far beyond anything real, so that no sum over an attempt leaves what the API's decimal strings can say.
MAX_NUMBER = 1e14
MAX_ENERGY_MILLIJOULES = 2 * 10**14  # a GPU of 1 kW for six years
MAX_TIME_SECONDS = 1e10
MAX_POWER_WATTS = 1e6
MAX_LIMIT_WATTS = 1e4
# The smallest part of an epoch, of a second and of a joule that a limit can have been measured over.
MIN_MEASURED = 1e-6


@dataclass(frozen=True)
class GpuEnergy:
    """The energy counter of one GPU at the start of the attempt and now.

    Attributes:
        uuid: The GPU.
        start_energy_millijoules: The cumulative counter when the attempt began.
        energy_millijoules: The cumulative counter now.
        start_time_seconds: The agent's clock when the attempt began.
        time_seconds: The agent's clock now; on simulated GPUs this is simulated time.
    """

    uuid: str
    start_energy_millijoules: int
    energy_millijoules: int
    start_time_seconds: float
    time_seconds: float


@dataclass(frozen=True)
class LimitMeasurement:
    """What a part of an epoch took at one power limit, over all GPUs of the process.

    Attributes:
        power_limit_watts: The limit held on each GPU.
        energy_joules: Energy of all GPUs together.
        time_seconds: Duration.
        epochs: The part of an epoch that it covers, a decimal.
    """

    power_limit_watts: float
    energy_joules: float
    time_seconds: float
    epochs: float


@dataclass(frozen=True)
class Report:
    """What a training process says of its attempt.

    Attributes:
        sequence: Rises with each report, also over processes that follow one another in an attempt: they begin with the
            milliseconds since the epoch. One that is not above the last seen changes nothing.
        epoch: Epochs completed by this process, a decimal.
        metric: The target metric as last evaluated; None before the first evaluation.
        evaluations: How often this process has evaluated the metric.
        reached_in_a_row: How many evaluations in a row, up to the last, reached the target: where a report was lost,
            nobody else knows. None: not counted.
        gpus: One entry a GPU of the process; empty where no agent answers.
        gpu_product: Product name of the GPUs.
        max_power_limit_watts: Sum of the GPUs' maximum power limits.
        power_limit_watts: The limit held now on each GPU; None where none is held.
        power_limit_refusal: Why the limit that was asked for last is not held; empty: it is, or none was asked for.
        profile: Power limits measured in this attempt; empty unless it was asked to.
        finished: Whether this is the last report.
        rank: Which process of a distributed run speaks; the metric of rank 0 counts.
    """

    sequence: int
    epoch: float
    metric: float | None = None
    evaluations: int = 0
    reached_in_a_row: int | None = None
    gpus: tuple[GpuEnergy, ...] = ()
    gpu_product: str = ""
    max_power_limit_watts: float = 0.0
    power_limit_watts: float | None = None
    power_limit_refusal: str = ""
    profile: tuple[LimitMeasurement, ...] = ()
    finished: bool = False
    rank: int = 0

    def to_json(self) -> dict[str, Any]:
        """The report as JSON types."""
        return asdict(self)

    @staticmethod
    def from_json(body: object) -> Report:
        """Check and read a report.

        Raises:
            MessageError: A field is missing, unknown, of the wrong type, not finite, negative or out of bounds.

        Example:
            >>> Report.from_json({"sequence": 1, "epoch": 1, "metric": float("nan")})
            Traceback (most recent call last):
            wattloop.message_fields.MessageError: metric: found nan, expected a finite number
        """
        read = Fields.of(body, "", Report)
        report = Report(
            sequence=read.integer("sequence"),
            epoch=read.number("epoch", minimum=0.0, maximum=MAX_NUMBER),
            metric=read.optional("metric", minimum=-MAX_NUMBER, maximum=MAX_NUMBER),
            evaluations=read.integer("evaluations", default=0),
            reached_in_a_row=None if read.values.get("reached_in_a_row") is None else read.integer("reached_in_a_row"),
            gpus=tuple(_gpu(entry, index) for index, entry in enumerate(read.entries("gpus", MAX_GPUS))),
            gpu_product=read.text("gpu_product", MAX_PRODUCT_CHARACTERS, default=""),
            max_power_limit_watts=read.number(
                "max_power_limit_watts", default=0.0, minimum=0.0, maximum=MAX_POWER_WATTS
            ),
            power_limit_watts=read.optional("power_limit_watts", minimum=0.0, maximum=MAX_LIMIT_WATTS),
            power_limit_refusal=read.text("power_limit_refusal", MAX_REFUSAL_CHARACTERS, default=""),
            profile=tuple(_limit(entry, index) for index, entry in enumerate(read.entries("profile", MAX_LIMITS))),
            finished=read.boolean("finished", default=False),
            rank=read.integer("rank", default=0),
        )
        if len({gpu.uuid for gpu in report.gpus}) != len(report.gpus):
            raise MessageError("gpus: found the same uuid twice, expected one entry a GPU")
        # Limits are kept in whole watts.
        if len({round(limit.power_limit_watts) for limit in report.profile}) != len(report.profile):
            raise MessageError("profile: found the same power limit twice, expected one entry a limit, in whole watts")
        return report


@dataclass(frozen=True)
class Answer:
    """What the reporting API answers to a report.

    Attributes:
        stop: Whether the process shall end now.
        reason: Why, for the log of the training process.
    """

    stop: bool
    reason: str = ""

    @staticmethod
    def from_json(body: object) -> Answer:
        """Check and read an answer; fields that a later version may add are passed over.

        Raises:
            MessageError: It is not of the form {"stop": …, "reason": …}.
        """
        read = Fields.of(body, "", None)
        reason = read.values.get("reason", "")
        if not isinstance(reason, str):
            raise MessageError(f"reason: found {shown(reason)}, expected a text")
        return Answer(read.boolean("stop", default=False), reason[:MAX_REASON_CHARACTERS])


def _gpu(body: object, index: int) -> GpuEnergy:
    place = f"gpus[{index}]"
    read = Fields.of(body, place, GpuEnergy)
    gpu = GpuEnergy(
        uuid=read.matching("uuid", GPU_UUID, "a GPU's uuid as NVML gives it, such as GPU-<uuid> or MIG-<uuid>"),
        start_energy_millijoules=read.integer("start_energy_millijoules", maximum=MAX_ENERGY_MILLIJOULES),
        energy_millijoules=read.integer("energy_millijoules", maximum=MAX_ENERGY_MILLIJOULES),
        start_time_seconds=read.number("start_time_seconds", minimum=0.0, maximum=MAX_TIME_SECONDS),
        time_seconds=read.number("time_seconds", minimum=0.0, maximum=MAX_TIME_SECONDS),
    )
    if gpu.energy_millijoules < gpu.start_energy_millijoules:
        raise MessageError(
            f"{place}.energy_millijoules: found {gpu.energy_millijoules}, "
            f"expected at least the start's {gpu.start_energy_millijoules}: energy is never negative"
        )
    if gpu.time_seconds < gpu.start_time_seconds:
        raise MessageError(f"{place}.time_seconds: found {gpu.time_seconds}, expected at least the start's")
    return gpu


def _limit(body: object, index: int) -> LimitMeasurement:
    read = Fields.of(body, f"profile[{index}]", LimitMeasurement)
    return LimitMeasurement(
        power_limit_watts=read.number("power_limit_watts", minimum=1.0, maximum=MAX_LIMIT_WATTS),
        energy_joules=read.number("energy_joules", minimum=MIN_MEASURED, maximum=MAX_NUMBER),
        time_seconds=read.number("time_seconds", minimum=MIN_MEASURED, maximum=MAX_TIME_SECONDS),
        epochs=read.number("epochs", minimum=MIN_MEASURED, maximum=MAX_NUMBER),
    )
