"""Energy, time and GPUs of an attempt, from the intervals of the counters that its processes report.

A process reports the counter of each of its GPUs at its own start and now. A process that starts again within the
attempt, in the same pod or in another one, reports another interval, so that what others use in between does not
count. Intervals of one counter that overlap, in energy and in time, are of processes that ran at once, and count
once: their hull does. A counter that began again, with the driver or the node, is another one.
"""

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal

from wattloop.energy.gpu_reading import any_shared
from wattloop.wire.training_messages import GpuEnergy, Report
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.domain.gpu_readings import MAX_EARLIER_INTERVALS, CountedInterval, GpuIntervals

# Of all GPUs of an attempt together, so that they fit the maximum size of the progress.
MAX_EARLIER_OF_ATTEMPT = 256


def readings_after(before: tuple[GpuIntervals, ...], report: Report, max_gpus: int) -> tuple[GpuIntervals, ...]:
    """The readings by uuid after a report. Beyond `max_gpus` GPUs, those reported first are kept."""
    merged = {reading.uuid: reading for reading in before}
    places = [merged[gpu.uuid].place for gpu in report.gpus if gpu.uuid in merged]
    place = min(places, default=max((each.place + 1 for each in before if each.rank == report.rank), default=0))
    for gpu in report.gpus:
        known = merged.get(gpu.uuid)
        if known is None and len(merged) >= max_gpus:
            continue
        if known is None:
            merged[gpu.uuid] = GpuIntervals(
                uuid=gpu.uuid,
                rank=report.rank,
                place=place,
                devices=len(report.gpus),
                shared=gpu.shared,
                **vars(_interval_of(gpu)),
            )
            continue
        update = {"devices": max(known.devices, len(report.gpus)), "shared": any_shared((known.shared, gpu.shared))}
        merged[gpu.uuid] = _with_interval(known, gpu, len(merged)).model_copy(update=update)
    return tuple(merged[uuid] for uuid in sorted(merged))


def duration_seconds(gpus: Sequence[GpuIntervals]) -> Decimal:
    """How long the attempt used its GPUs: of each rank one place after the other, and of all ranks the longest."""
    ranks: dict[int, Decimal] = defaultdict(Decimal)
    for (rank, _), readings in _by_place(gpus).items():
        ranks[rank] += max(each.used_seconds for each in readings)
    return max(ranks.values(), default=Decimal(0))


def devices_at_once(gpus: Sequence[GpuIntervals]) -> int:
    """How many GPUs the attempt used at once: of each rank the most that it used in one place."""
    ranks: dict[int, int] = defaultdict(int)
    for (rank, _), readings in _by_place(gpus).items():
        ranks[rank] = max(ranks[rank], *(each.devices for each in readings))
    return min(sum(ranks.values()), len(gpus))


def _by_place(gpus: Sequence[GpuIntervals]) -> dict[tuple[int, int], list[GpuIntervals]]:
    places: dict[tuple[int, int], list[GpuIntervals]] = defaultdict(list)
    for each in gpus:
        places[each.rank, each.place].append(each)
    return places


def _interval_of(gpu: GpuEnergy) -> CountedInterval:
    return CountedInterval(
        start_energy_millijoules=gpu.start_energy_millijoules,
        energy_millijoules=gpu.energy_millijoules,
        start_time_seconds=to_decimal(gpu.start_time_seconds),
        time_seconds=to_decimal(gpu.time_seconds),
        uncertainty_millijoules=gpu.uncertainty_millijoules,
        counter=gpu.counter,
    )


def _with_interval(known: GpuIntervals, gpu: GpuEnergy, gpus: int) -> GpuIntervals:
    latest = CountedInterval(**{name: getattr(known, name) for name in CountedInterval.model_fields})
    intervals = _merged([*known.earlier, latest], _interval_of(gpu), is_complete=known.oldest is None)
    kept = min(MAX_EARLIER_INTERVALS, MAX_EARLIER_OF_ATTEMPT // gpus) + 1
    oldest = known.oldest
    for each in intervals[:-kept]:
        oldest = _sum(oldest, each)
    *earlier, last = intervals[-kept:]
    return known.model_copy(update={**vars(last), "earlier": tuple(earlier), "oldest": oldest})


def _merged(intervals: Sequence[CountedInterval], new: CountedInterval, *, is_complete: bool) -> list[CountedInterval]:
    """The intervals with a new one, in their order; those that it overlaps become one, in the place of the last.

    `intervals`: intervals that do not overlap, oldest first. `is_complete`: whether these are all. One that is older
    than all may otherwise be part of the sum of the oldest.
    """
    apart: list[CountedInterval] = []
    place: int | None = None
    for each in reversed(intervals):
        if _overlap(each, new):
            one = each
            later = max(one, new, key=lambda each: (each.energy_millijoules, each.time_seconds))
            new = CountedInterval(
                start_energy_millijoules=min(one.start_energy_millijoules, new.start_energy_millijoules),
                energy_millijoules=later.energy_millijoules,
                start_time_seconds=min(one.start_time_seconds, new.start_time_seconds),
                # The clock of another process may be behind.
                time_seconds=max(one.time_seconds, new.time_seconds),
                uncertainty_millijoules=later.uncertainty_millijoules,
                counter=one.counter,
            )
            place = len(apart) if place is None else place
        else:
            apart.append(each)
    if place is None:
        newer = sum(
            (
                new.counter == each.counter
                and new.energy_millijoules <= each.start_energy_millijoules
                and new.time_seconds <= each.start_time_seconds
            )
            for each in apart
        )
        if newer and not is_complete:
            return list(intervals)
        place = newer
    apart.insert(place, new)
    return apart[::-1]


def _overlap(one: CountedInterval, other: CountedInterval) -> bool:
    start_energy = max(one.start_energy_millijoules, other.start_energy_millijoules)
    start_time = max(one.start_time_seconds, other.start_time_seconds)
    return (
        one.counter == other.counter
        and start_energy <= min(one.energy_millijoules, other.energy_millijoules)
        and start_time <= min(one.time_seconds, other.time_seconds)
    )


def _sum(one: CountedInterval | None, other: CountedInterval) -> CountedInterval:
    bounds = [each.uncertainty_millijoules for each in (one, other) if each is not None]
    known = [bound for bound in bounds if bound is not None]
    return CountedInterval(
        start_energy_millijoules=0,
        energy_millijoules=other.energy_millijoules
        - other.start_energy_millijoules
        + (0 if one is None else one.energy_millijoules),
        start_time_seconds=Decimal(0),
        time_seconds=other.time_seconds - other.start_time_seconds + (Decimal(0) if one is None else one.time_seconds),
        uncertainty_millijoules=sum(known) if known else None,
    )
