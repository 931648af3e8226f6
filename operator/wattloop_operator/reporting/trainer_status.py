"""The status that Kubeflow Trainer's callbacks post, such as the one that Hugging Face's Trainer has built in.

Each status repeats the latest value of every metric that the script logs, at most every five seconds.
The values of one evaluation have a common prefix, such as `eval_`, and among them is its run time, so
that two evaluations with the same metric differ.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar

from wattloop.wire.message_fields import MessageError, Pattern, TruncatedString
from wattloop.wire.wire_form import MaxItems, WireForm
from wattloop_operator.api.objective import Target
from wattloop_operator.domain.training_output import number_in
from wattloop_operator.reconcile.attempt.report_effect import OutputReport

# As in Kubeflow's own API.
MAX_METRICS = 256
MAX_CHARACTERS = 128
MICROSECONDS = 1_000_000
TIME = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
# The epoch of the latest logged values, and that of the latest step.
EPOCH_NAMES = ("epoch", "current_epoch")
DIGEST_CHARACTERS = 16


@dataclass(frozen=True)
class TrainerMetric(WireForm):
    """A metric of a status."""

    ignores_unknown_fields: ClassVar[bool] = True

    name: Annotated[str, TruncatedString(MAX_CHARACTERS), "Name of the metric as the script logs it."]
    value: Annotated[str, TruncatedString(MAX_CHARACTERS), "Its latest value, a number as text."]


@dataclass(frozen=True)
class TrainerStatus(WireForm):
    """The state of a training."""

    ignores_unknown_fields: ClassVar[bool] = True

    lastUpdatedTime: Annotated[  # noqa: N815 - the name in the protocol
        str,
        Pattern(TIME, MAX_CHARACTERS, "a time with its zone, such as 2026-03-01T12:00:00Z"),
        "When the status was made.",
    ]
    metrics: Annotated[tuple[TrainerMetric, ...], MaxItems(MAX_METRICS), "The latest value of each metric."] = ()

    @property
    def microseconds(self) -> int:
        """When the status was made, since the epoch."""
        return max(round(datetime.fromisoformat(self.lastUpdatedTime).timestamp() * MICROSECONDS), 1)

    def check(self, place: str) -> None:
        """See `WireForm`: the time exists in the calendar."""
        try:
            _ = self.microseconds
        except (ValueError, OverflowError):
            found = f"found {self.lastUpdatedTime!r}"
            raise MessageError(f"{place}lastUpdatedTime: {found}, expected a date of the calendar") from None


@dataclass(frozen=True)
class TrainerStatusMessage(WireForm):
    """The body of a request."""

    ignores_unknown_fields: ClassVar[bool] = True

    trainerStatus: Annotated[TrainerStatus, "The state of the training."]  # noqa: N815 - the name in the protocol


def output_report_of(status: TrainerStatus, target: Target, pod_uid: str = "") -> OutputReport:
    """What a status says about an attempt.

    `pod_uid`: UID of the pod that sent it; empty where there are no pods.

    Example:
        >>> metrics = [{"name": "eval_loss", "value": "0.5"}, {"name": "epoch", "value": "2.0"}]
        >>> body = {"lastUpdatedTime": "1970-01-01T00:00:01Z", "metrics": metrics}
        >>> target = Target.model_validate({"metric": "eval_loss", "threshold": "0.4"})
        >>> report = output_report_of(TrainerStatus.from_json(body), target)
        >>> report.position, report.metric, report.epoch
        (1000000, 0.5, 2.0)
    """
    values = {metric.name: metric.value for metric in status.metrics}
    name = target.metric
    epochs = (number_in(values.get(each)) for each in EPOCH_NAMES)
    prefix, separator, _ = name.partition("_")
    same = sorted((key, value) for key, value in values.items() if key == name or key.startswith(prefix + separator))
    if not separator:
        same = [(name, values.get(name, "")), ("epoch", values.get("epoch", ""))]
    return OutputReport(
        status.microseconds,
        metric=number_in(values.get(name)),
        epoch=next((max(epoch, 0.0) for epoch in epochs if epoch is not None and epoch < float("inf")), None),
        evaluation=hashlib.sha256(repr(same).encode()).hexdigest()[:DIGEST_CHARACTERS],
        process=pod_uid,
        has_clock_position=True,
    )
