"""Reports that Wattloop makes from what it sees of a training that does not use the client.

A training that uses the client counts its evaluations and numbers its reports. Of another training,
Wattloop sees single values: a line of its output, or a status in another protocol. Each has a process, such
as the container, and a position in it that rises, so that a value that is seen twice counts once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wattloop.wire.training_messages import MAX_NUMBER, GpuEnergy, LimitMeasurement, Report
from wattloop_operator.domain.progress import Progress, ReportingProcess

# Some libraries write epochs with two decimals. A smaller decrease is no restart of the training.
EPOCH_ROUNDING = 0.01


@dataclass(frozen=True)
class ObservedGpus:
    """The GPUs of a training, read from outside.

    Attributes:
        energies: Energy counters at the start of the attempt and now.
        product: Product name.
        max_power_limit_watts: Sum of their maximum power limits.
        power_limit_watts: The limit held now on each GPU; None if none is held.
        power_limit_refusal: Why the requested limit is not held.
        profile: Power limits measured in this attempt.
    """

    energies: tuple[GpuEnergy, ...] = ()
    product: str = ""
    max_power_limit_watts: float = 0.0
    power_limit_watts: float | None = None
    power_limit_refusal: str = ""
    profile: tuple[LimitMeasurement, ...] = ()


@dataclass(frozen=True)
class OutputReport:
    """What was seen of a training.

    Attributes:
        position: Where it was seen. Only a position above all earlier ones changes epoch and metric.
        metric: The metric of an evaluation, NaN or infinite if the training diverged; None if there was no
            evaluation.
        epoch: Epochs completed; None if not known. Then each evaluation counts as one epoch.
        evaluation: Identifies the evaluation if values of one evaluation are seen repeatedly; empty: each is
            a new one.
        gpus: The GPUs.
        finished: Whether nothing more follows.
        is_followed: Whether later values were seen at the same moment. The GPUs were read once for all of them, so only
            the last one tells what an epoch cost, and only it is judged.
        process: The process that it was seen of; a container that is started again is another one.
        has_clock_position: Whether the position is a time of the process's clock, which may be set back: more epochs
            are newer then too. Fewer epochs at an earlier time are of a late status, or of a training that was
            started again in the same process after the clock was set back: they do not count.
        counts_from_0: Whether the output has shown that its first epoch is epoch 0. A later reader may not have the
            line that did.
    """

    position: int
    metric: float | None = None
    epoch: float | None = None
    evaluation: str = ""
    gpus: ObservedGpus = ObservedGpus()
    finished: bool = False
    is_followed: bool = False
    process: str = ""
    has_clock_position: bool = False
    counts_from_0: bool = False


def report_of(before: Progress, seen: OutputReport) -> Report:
    """The report that the training would have sent.

    Args:
        before: The progress of the attempt, from which evaluations are counted on.
        seen: What was seen.
    """
    evaluated = seen.metric is not None and (not seen.evaluation or seen.evaluation != before.latest_evaluation)
    known = (each for each in reversed(before.processes) if each.id == seen.process)
    process = next(known, ReportingProcess(id=seen.process))
    epochs_before = float(process.epoch)
    if seen.epoch is None:
        epoch = epochs_before + (1 if evaluated else 0)
    else:
        is_rounded = epochs_before - EPOCH_ROUNDING <= seen.epoch < epochs_before
        epoch = epochs_before if is_rounded else seen.epoch
    finite = seen.metric is not None and math.isfinite(seen.metric)
    metric = min(max(seen.metric, -MAX_NUMBER), MAX_NUMBER) if seen.metric is not None and finite else None
    is_clock_behind = seen.has_clock_position and seen.position <= process.sequence and epoch > epochs_before
    return Report(
        process=seen.process,
        sequence=process.sequence + 1 if is_clock_behind else seen.position,
        epoch=min(epoch, MAX_NUMBER),
        metric=metric if evaluated else None,
        diverged=evaluated and not finite,
        evaluations=process.evaluations + (1 if evaluated else 0),
        gpus=seen.gpus.energies,
        gpu_product=seen.gpus.product,
        max_power_limit_watts=seen.gpus.max_power_limit_watts,
        power_limit_watts=seen.gpus.power_limit_watts,
        power_limit_refusal=seen.gpus.power_limit_refusal,
        profile=seen.gpus.profile,
        finished=seen.finished,
    )
