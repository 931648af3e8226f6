"""Wire forms between a training process and the reporting API: small JSON objects, the same in a pod and on a laptop.

Every report is cumulative: it repeats the first and the newest reading of each GPU's energy counter and all power-limit
measurements so far, so that a lost or repeated report changes nothing and a late one brings everything up to date.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

LARGEST_REPORT_BYTES = 64 * 1024
MOST_GPUS = 64
MOST_LIMITS = 64
LONGEST_TEXT = 256


class MessageError(ValueError):
    """A message that cannot be accepted; the text names the field, what was found and what would be right."""


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
        sequence: Rises with each report of a process; an older one than the last seen changes nothing.
        epoch: Epochs completed, a decimal.
        metric: The target metric as last evaluated; None before the first evaluation.
        evaluations: How often the metric has been evaluated.
        gpus: One entry a GPU of the process; empty where no agent answers.
        gpu_product: Product name of the GPUs.
        max_power_limit_watts: Sum of the GPUs' maximum power limits.
        power_limit_watts: The limit held now on each GPU; None where none is held.
        profile: Power limits measured in this attempt; empty unless it was asked to.
        finished: Whether this is the last report.
        rank: Which process of a distributed run speaks; the metric of rank 0 counts.
    """

    sequence: int
    epoch: float
    metric: float | None = None
    evaluations: int = 0
    gpus: tuple[GpuEnergy, ...] = ()
    gpu_product: str = ""
    max_power_limit_watts: float = 0.0
    power_limit_watts: float | None = None
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
            wattloop.messages.MessageError: metric: found nan, expected a finite number
        """
        fields = _fields(body, "report", Report)
        report = Report(
            sequence=_whole(fields, "sequence"),
            epoch=_number(fields, "epoch", least=0.0),
            metric=None if fields.get("metric") is None else _number(fields, "metric"),
            evaluations=_whole(fields, "evaluations", 0),
            gpus=tuple(_gpu(entry, index) for index, entry in enumerate(_list(fields, "gpus", MOST_GPUS))),
            gpu_product=_text(fields, "gpu_product", ""),
            max_power_limit_watts=_number(fields, "max_power_limit_watts", 0.0, least=0.0),
            power_limit_watts=(
                None if fields.get("power_limit_watts") is None else _number(fields, "power_limit_watts", least=0.0)
            ),
            profile=tuple(_limit(entry, index) for index, entry in enumerate(_list(fields, "profile", MOST_LIMITS))),
            finished=_boolean(fields, "finished", default=False),
            rank=_whole(fields, "rank", 0),
        )
        if len({gpu.uuid for gpu in report.gpus}) != len(report.gpus):
            raise MessageError("gpus: found the same uuid twice, expected one entry a GPU")
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
        """Check and read an answer.

        Raises:
            MessageError: It is not of the form {"stop": …, "reason": …}.
        """
        fields = _fields(body, "answer", Answer)
        return Answer(_boolean(fields, "stop", default=False), _text(fields, "reason", ""))


def _gpu(body: object, index: int) -> GpuEnergy:
    place = f"gpus[{index}]"
    fields = _fields(body, place, GpuEnergy)
    gpu = GpuEnergy(
        uuid=_text(fields, "uuid", place=place),
        start_energy_millijoules=_whole(fields, "start_energy_millijoules", place=place),
        energy_millijoules=_whole(fields, "energy_millijoules", place=place),
        start_time_seconds=_number(fields, "start_time_seconds", least=0.0, place=place),
        time_seconds=_number(fields, "time_seconds", least=0.0, place=place),
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
    place = f"profile[{index}]"
    fields = _fields(body, place, LimitMeasurement)
    return LimitMeasurement(
        power_limit_watts=_number(fields, "power_limit_watts", least=0.0, place=place),
        energy_joules=_number(fields, "energy_joules", least=0.0, place=place),
        time_seconds=_number(fields, "time_seconds", least=0.0, place=place),
        epochs=_number(fields, "epochs", least=0.0, place=place),
    )


def _fields(body: object, place: str, form: type) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise MessageError(f"{place}: found {type(body).__name__}, expected an object")
    known = form.__dataclass_fields__  # type: ignore[attr-defined]
    unknown = sorted(str(key)[:LONGEST_TEXT] for key in body if key not in known)
    if unknown:
        raise MessageError(f"{place}: found the unknown field {unknown[0]}, expected only {', '.join(known)}")
    return body


def _number(
    fields: Mapping[str, Any], name: str, default: float | None = None, *, least: float = -math.inf, place: str = ""
) -> float:
    value = fields.get(name, default)
    where = f"{place}.{name}" if place else name
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MessageError(f"{where}: found {_shown(value)}, expected a finite number")
    try:
        number = float(value)
    except OverflowError:
        raise MessageError(f"{where}: found an integer beyond all bounds, expected a finite number") from None
    if not math.isfinite(number):
        raise MessageError(f"{where}: found {value}, expected a finite number")
    if number < least:
        raise MessageError(f"{where}: found {value}, expected at least {least:g}")
    return number


def _whole(fields: Mapping[str, Any], name: str, default: int | None = None, *, place: str = "") -> int:
    value = fields.get(name, default)
    where = f"{place}.{name}" if place else name
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise MessageError(f"{where}: found {_shown(value)}, expected a whole number from 0 to 2^63-1")
    return value


def _text(fields: Mapping[str, Any], name: str, default: str | None = None, *, place: str = "") -> str:
    value = fields.get(name, default)
    where = f"{place}.{name}" if place else name
    if not isinstance(value, str) or len(value) > LONGEST_TEXT or (default is None and not value):
        raise MessageError(f"{where}: found {_shown(value)}, expected a text of at most {LONGEST_TEXT} characters")
    return value


def _boolean(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise MessageError(f"{name}: found {_shown(value)}, expected true or false")
    return value


def _list(fields: Mapping[str, Any], name: str, most: int) -> list[Any] | tuple[Any, ...]:
    value = fields.get(name, [])
    if not isinstance(value, list | tuple) or len(value) > most:
        found = f"{len(value)} entries" if isinstance(value, list | tuple) else _shown(value)
        raise MessageError(f"{name}: found {found}, expected a list of at most {most} entries")
    return value


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:LONGEST_TEXT]
