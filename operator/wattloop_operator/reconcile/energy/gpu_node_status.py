"""The status of a GPUNode, from the latest two reports of the node's agent, and when it is written."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from wattloop.wire.node_energy import NodeGpu, NodeReport
from wattloop.wire.training_messages import GpuEnergy
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.gpu_node import MAX_HOLDERS, GPUHolder, GPUNodeStatus, NodeGPU
from wattloop_operator.domain.gpu_readings import GpuIntervals, RecentPower
from wattloop_operator.domain.progress import Progress

# A thousand nodes lead to 200 writes a minute if nothing changes, and to 1,000 at most.
WRITE_INTERVAL = timedelta(seconds=60)
SIGN_OF_LIFE = timedelta(minutes=5)
# Older values say nothing of the node: its agent does not report, or cannot read the GPUs.
MAX_AGE = 2 * SIGN_OF_LIFE
# The power of a GPU has changed if it differs by more than both.
MIN_CHANGE_WATTS, MIN_CHANGE_SHARE = Decimal(10), Decimal("0.1")

Readings = Mapping[str, tuple[int, float]]
"""Energy in millijoules and clock in seconds of each GPU, by UUID."""
# A counter rises in steps of up to 0.1 s, whose energy a shorter interval may have or lack.
MIN_SECONDS = 1.0
# Where all reports come sooner than that, the power is renewed this often.
RENEWAL = timedelta(seconds=10)


def readings_of(report: NodeReport) -> Readings:
    """The readings of a report."""
    return {each.uuid: (each.energy_millijoules, each.time_seconds) for each in report.gpus}


def is_newer(before: Readings, report: NodeReport) -> bool:
    """Whether a report is far enough from the readings before for a power: the parts of a report follow each other."""
    return any(
        each.uuid not in before or abs(each.time_seconds - before[each.uuid][1]) >= MIN_SECONDS for each in report.gpus
    )


def gpu_node_status(before: Readings, report: NodeReport, now: datetime) -> GPUNodeStatus:
    """The status after a report. `before`: the readings before it, of the same ledger; empty if there are none."""
    last_report_time = now.replace(microsecond=0)
    if not report.gpus:
        return GPUNodeStatus(last_report_time=last_report_time, gpu_count=0)
    holders = _holders(report) if report.complete else None
    gpus = tuple(_gpu(before, each, holders) for each in sorted(report.gpus, key=lambda gpu: gpu.uuid))
    free = None if holders is None else [each for each in gpus if not each.pods]
    return GPUNodeStatus(
        last_report_time=last_report_time,
        gpu_count=len(gpus),
        free_gpus=None if free is None else len(free),
        power_watts=_sum(gpus),
        free_power_watts=None if free is None else _sum(free),
        gpus=gpus,
    )


def must_be_written(written: GPUNodeStatus | None, status: GPUNodeStatus, now: datetime) -> bool:
    """Whether a status differs enough from the one that was written last, or is a sign of life."""
    if written is None or written.last_report_time is None:
        return True
    age = now - written.last_report_time
    return age >= SIGN_OF_LIFE or (age >= WRITE_INTERVAL and _differs(written, status))


def _holders(report: NodeReport) -> Mapping[str, Sequence[GPUHolder]]:
    pods: defaultdict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for usage in report.usages:
        if not usage.ended:
            pods[usage.gpu].add((usage.namespace, usage.pod, usage.pod_uid))
    return {
        gpu: [GPUHolder(namespace=namespace, pod=pod, uid=uid) for namespace, pod, uid in sorted(each)]
        for gpu, each in pods.items()
    }


def _gpu(before: Readings, gpu: NodeGpu, holders: Mapping[str, Sequence[GPUHolder]] | None) -> NodeGPU:
    energy, seconds = before.get(gpu.uuid, (gpu.energy_millijoules, gpu.time_seconds))
    pods = None if holders is None else holders.get(gpu.uuid, ())
    return NodeGPU(
        uuid=gpu.uuid,
        product=gpu.product or None,
        power_watts=mean_power_watts(gpu.energy_millijoules - energy, gpu.time_seconds - seconds),
        limit_watts=_watts(gpu.enforced_power_limit_watts),
        max_limit_watts=_watts(gpu.max_power_limit_watts),
        pods=None if pods is None else len(pods),
        holders=tuple((pods or ())[:MAX_HOLDERS]),
    )


def _watts(limit: float) -> Decimal | None:
    return to_decimal(round(limit, 1)) if limit else None


def _sum(gpus: Iterable[NodeGPU]) -> Decimal | None:
    known = [each.power_watts for each in gpus]
    return None if None in known else sum(filter(None, known), Decimal(0))


def _differs(written: GPUNodeStatus, status: GPUNodeStatus) -> bool:
    if len(written.gpus) != len(status.gpus):
        return True
    return any(_gpu_differs(*each) for each in zip(written.gpus, status.gpus, strict=True))


def _gpu_differs(written: NodeGPU, now: NodeGPU) -> bool:
    power, before = now.power_watts, written.power_watts
    if power is None or before is None or written.model_copy(update={"power_watts": power}) != now:
        return written != now
    return abs(power - before) > max(MIN_CHANGE_WATTS, MIN_CHANGE_SHARE * before)


def with_recent_power(before: Progress, after: Progress, readings: Sequence[GpuEnergy], now: datetime) -> Progress:
    """The progress after a report with the mean power of each of its GPUs, where the report has a new reading."""
    known = {each.uuid: each for each in before.gpus}
    reported = {each.uuid: each for each in readings}
    gpus = tuple(
        each if each.uuid not in reported else _with_recent(known.get(each.uuid), each, reported[each.uuid], now)
        for each in after.gpus
    )
    return after if gpus == after.gpus else after.model_copy(update={"gpus": gpus})


def _with_recent(known: GpuIntervals | None, merged: GpuIntervals, reported: GpuEnergy, now: datetime) -> GpuIntervals:
    recent = None if known is None else known.recent
    is_newer = known is None or merged.used_millijoules > known.used_millijoules
    # A clock that is behind that of an earlier process leaves that one's time: no interval can end at it.
    if is_newer and merged.time_seconds == to_decimal(reported.time_seconds):
        recent = _power_since_report(known, reported, now) or _power_since_start(recent, reported, now) or recent
    return merged if recent == merged.recent else merged.model_copy(update={"recent": recent})


def _power_since_report(known: GpuIntervals | None, reported: GpuEnergy, now: datetime) -> RecentPower | None:
    """The mean power since the reading before; None if that may be another process's.

    Another process may count from zero, as after a restart of the node, and then pass the readings of the one before.
    """
    if known is None:
        return None
    latest_start = known.start_time_seconds if known.recent is None else known.recent.start_time_seconds
    if latest_start != to_decimal(reported.start_time_seconds):
        return None
    return _power_between(known.energy_millijoules, float(known.time_seconds), reported, now)


def _power_since_start(recent: RecentPower | None, reported: GpuEnergy, now: datetime) -> RecentPower | None:
    """The mean power since the process began; None while a power of this process is new enough."""
    if (
        recent is not None
        and recent.start_time_seconds == to_decimal(reported.start_time_seconds)
        and now - recent.time < RENEWAL
    ):
        return None
    return _power_between(reported.start_energy_millijoules, reported.start_time_seconds, reported, now)


def _power_between(energy: int, seconds: float, reported: GpuEnergy, now: datetime) -> RecentPower | None:
    """The mean power from a reading to the reported one; None if that is less than `MIN_SECONDS`."""
    span = reported.time_seconds - seconds
    power_watts = mean_power_watts(reported.energy_millijoules - energy, span)
    if power_watts is None:
        return None
    return RecentPower(
        power_watts=power_watts,
        seconds=to_decimal(round(span, 2)),
        time=now.replace(microsecond=0),
        start_time_seconds=to_decimal(reported.start_time_seconds),
    )


def mean_power_watts(millijoules: int, seconds: float) -> Decimal | None:
    """The mean power of an energy over a time; None without energy, or if the time is less than `MIN_SECONDS`.

    Example:
        >>> mean_power_watts(350_000, 5.0), mean_power_watts(350_000, 0.5)
        (Decimal('70'), None)
    """
    return None if millijoules <= 0 or seconds < MIN_SECONDS else to_decimal(round(millijoules / 1000 / seconds, 1))
