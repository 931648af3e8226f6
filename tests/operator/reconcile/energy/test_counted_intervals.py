"""Energy, time and GPUs of an attempt whose processes start again, move, or run at once."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import ModelBackend, job
from support.backends.sample_reports import pod_energy, report
from wattloop.wire.training_messages import GpuEnergy, Report
from wattloop_operator.api.training_recurrence import Attribution, EnergySource
from wattloop_operator.domain.gpu_readings import MAX_EARLIER_INTERVALS, GpuIntervals
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.energy.attempt_usage import usage_of
from wattloop_operator.reconcile.energy.counted_intervals import devices_at_once, duration_seconds, readings_after

Part = tuple[str, int, int, float, float, str]
"""GPU, joules at start and end, seconds at start and end, counter."""


def reading(part: Part, shared: bool | None = False) -> GpuEnergy:
    gpu, start, end, begin_seconds, seconds, counter = part
    return GpuEnergy(
        f"GPU-{gpu.removeprefix('GPU-')}",
        1000 * start,
        1000 * end,
        begin_seconds,
        seconds,
        shared=shared,
        counter=counter,
    )


def used(*reports: Sequence[Part], ranks: Iterable[int] = ()) -> tuple[float, float, int]:
    """Joules, seconds and devices after reports, each of some GPUs, of rank 0 or of these ranks."""
    gpus: tuple[GpuIntervals, ...] = ()
    for parts, rank in zip(reports, ranks or [0] * len(reports), strict=True):
        sent = Report(process="p", sequence=1, epoch=1.0, rank=rank, gpus=tuple(map(reading, parts)))
        gpus = readings_after(gpus, sent, 64)
    joules = sum(each.used_millijoules for each in gpus) / 1000
    return joules, float(duration_seconds(gpus)), devices_at_once(gpus)


@pytest.mark.parametrize(
    ("reports", "ranks", "expected"),
    [
        # A pod is replaced on its GPU, which another one had in between: 1,000 J that are not the attempt's.
        ([[("a", 0, 100, 0, 10, "x")], [("a", 1100, 1200, 60, 70, "x")]], [0, 0], (200, 20, 1)),
        # Reports repeat, and the last one of the first process comes late.
        (
            [[("a", 0, 60, 0, 6, "x")], [("a", 200, 250, 20, 25, "x")], [("a", 0, 100, 0, 10, "x")]],
            [0, 0, 0],
            (150, 15, 1),
        ),
        # A move to another node: the time of both parts, and one GPU at once.
        ([[("a", 0, 100, 0, 10, "x")], [("b", 70, 270, 900, 920, "y")]], [0, 0], (300, 30, 1)),
        # A move of two GPUs to one that it had and another one.
        (
            [[("a", 0, 10, 0, 5, "x"), ("b", 0, 20, 0, 5, "x")], [("b", 50, 60, 9, 12, "x"), ("c", 0, 7, 9, 12, "x")]],
            [0, 0],
            (47, 8, 2),
        ),
        # The driver is loaded again, and the node starts again: the counter repeats values that it had.
        ([[("a", 500, 900, 100, 200, "x")], [("a", 0, 700, 250, 350, "z")]], [0, 0], (1100, 200, 1)),
        ([[("a", 500, 900, 100, 200, "x")], [("a", 550, 800, 110, 150, "y")]], [0, 0], (650, 140, 1)),
        # Two processes at once on one GPU count once, two ranks with a GPU each add up.
        ([[("a", 0, 100, 0, 10, "x")], [("a", 10, 120, 1, 12, "x")]], [0, 1], (120, 12, 1)),
        ([[("a", 0, 100, 0, 10, "x")], [("b", 0, 90, 1, 12, "x")]], [0, 1], (190, 11, 2)),
    ],
)
def test_energy_and_time_are_those_of_the_processes_and_of_no_one_in_between(
    reports: list[list[Part]], ranks: list[int], expected: tuple[float, float, int]
) -> None:
    assert used(*reports, ranks=ranks) == expected


@given(
    lengths=st.lists(
        st.tuples(st.integers(0, 500), st.integers(1, 500)), min_size=1, max_size=3 * MAX_EARLIER_INTERVALS
    ),
    data=st.data(),
)
def test_nothing_is_lost_or_counted_twice_however_often_processes_start_again(
    lengths: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Each process uses 1 W; what others use before it is not reported. Reports are cumulative, and may come twice."""
    reports, at = [], 0
    for gap, length in lengths:
        at += gap + 1
        partial = data.draw(st.integers(0, length))
        reports += [[("a", at, at + partial, at, at + partial, "x")], [("a", at, at + length, at, at + length, "x")]]
        at += length
    again = data.draw(st.integers(0, 3))
    total = sum(length for _, length in lengths)
    assert used(*reports, *reports[-again:] if again else ()) == (total, total, 1)


def test_a_late_report_of_a_process_beyond_those_that_are_kept_apart_counts_nothing_twice() -> None:
    parts = [[("a", 100 * number, 100 * number + 10, 100 * number, 100 * number + 10, "x")] for number in range(9)]
    assert used(*parts, parts[0]) == used(*parts) == (90, 90, 1)


def test_a_pod_that_is_replaced_has_the_energy_that_the_agents_say_and_its_power_counts_once() -> None:
    backend = ModelBackend(job(power={"mode": "None"}), devices=1, agent_report_timeout_seconds=10)
    name = backend.start_attempt()
    recurrence = backend.recurrences[name]
    first = replace(report(sequence=1), gpus=(reading(("GPU-0", 0, 100, 0, 10, "x")),))
    second = replace(
        report(sequence=2, metric=0.95, finished=True), gpus=(reading(("GPU-0", 1100, 1200, 60, 70, "x")),)
    )
    progress = recurrence.progress
    for each in (first, second):
        progress = progress_after(recurrence, each)
        recurrence = recurrence.model_copy(update={"progress": progress})
    backend.recurrences[name] = recurrence
    backend.advance(20)
    backend.end_workload(name)
    pods = [pod_energy(100.5, 10.5, start_time_seconds=0.0, time_seconds=10.5, uncertainty_millijoules=500)]
    pods += [replace(pods[0], pod_uid="second", start_time_seconds=59.5, time_seconds=70.0)]
    backend.report_energy(name, *pods)
    status = backend.status_of(name)
    assert (status.usage.gpu_energy_joules, status.usage.duration_seconds, status.usage.devices) == (201, 21, 1)
    (agrees,) = [each for each in status.conditions if each.type == "EnergyAgrees"]
    assert (agrees.status, agrees.message) == ("True", "the processes counted 200.0 J, the node agents 201.0 J")
    assert progress.max_power_limit_watts == 400


@pytest.mark.parametrize("joules", [4000.0, 100.0])
def test_where_the_sources_contradict_each_other_the_agents_figure_is_stored_and_learned(joules: float) -> None:
    backend = ModelBackend(job(power={"mode": "None"}), devices=1, agent_report_timeout_seconds=10)
    name = backend.start_attempt()
    backend.advance(20)
    backend.report(name, epoch=5, metric=0.95, joules=joules, seconds=10.0, finished=True)
    backend.end_workload(name)
    # So uncertain that the processes' figure would be the more accurate one.
    backend.report_energy(name, pod_energy(2400.0, 10.0, uncertainty_millijoules=900_000))
    status = backend.status_of(name)
    assert (status.usage.energy_source, status.usage.gpu_energy_joules) == (EnergySource.AGENT, 2400)
    (agrees,) = [each for each in status.conditions if each.type == "EnergyAgrees"]
    assert f"the process counted {joules:.1f} J, its agent 2400.0 J" in agrees.message
    (record,) = backend.records.values()
    assert record.energy_joules == 2400


def test_energy_is_exclusive_only_if_every_report_says_so() -> None:
    backend = ModelBackend(job())
    recurrence = backend.recurrences[backend.start_attempt()]
    expected = {False: Attribution.EXCLUSIVE, None: Attribution.UNKNOWN, True: Attribution.SHARED}
    for shared, attribution in expected.items():
        gpus = (reading(("GPU-0", 0, 10, 0, 1, "x")), reading(("GPU-1", 0, 10, 0, 1, "x"), shared))
        usage = usage_of(progress_after(recurrence, replace(report(), gpus=gpus)))
        assert usage.attribution is attribution
