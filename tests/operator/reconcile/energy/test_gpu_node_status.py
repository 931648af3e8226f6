"""The status of a GPUNode follows from two reports of an agent, and is written when it differs enough."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from support.backends.model_backend import ModelBackend, job
from support.backends.sample_reports import report
from support.reporting.node_api import GPU, NODE, USAGE
from wattloop.wire.node_energy import NodeGpu, NodeReport, PodGpuUsage
from wattloop.wire.training_messages import GpuEnergy
from wattloop_operator.api.gpu_node import GPUNodeStatus
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.energy.gpu_node_status import (
    SIGN_OF_LIFE,
    WRITE_INTERVAL,
    gpu_node_status,
    is_newer,
    must_be_written,
    readings_of,
    with_recent_power,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
OTHER = replace(GPU, uuid="GPU-1", enforced_power_limit_watts=300.0, max_power_limit_watts=700.0)


def node_report(joules: int, seconds: float, *usages: PodGpuUsage, complete: bool = True) -> NodeReport:
    """After some joules on each of two GPUs."""
    gpus = (
        replace(each, energy_millijoules=9_000 + 1000 * joules, time_seconds=6.0 + seconds) for each in (OTHER, GPU)
    )
    return NodeReport(NODE, "ledger", 1, tuple(gpus), usages, complete=complete)


def status(joules: int, seconds: float, *usages: PodGpuUsage, complete: bool = True) -> GPUNodeStatus:
    """After a report with these joules, of which the one before had none."""
    return gpu_node_status(
        readings_of(node_report(0, 0.0)), node_report(joules, seconds, *usages, complete=complete), NOW
    )


def test_each_gpu_has_its_power_its_limits_and_the_pods_that_hold_it() -> None:
    web = replace(USAGE, pod_uid="uid-2", pod="web", shared=True)
    found = status(350, 5.0, USAGE, replace(USAGE, container="second"), web, replace(USAGE, gpu="GPU-1", ended=True))
    first, second = found.gpus
    assert (first.power_watts, first.limit_watts, first.pods) == (70, None, 2)
    assert [f"{each.namespace}/{each.pod}" for each in first.holders] == ["team/digits-0-abc", "team/web"]
    assert [each.uid for each in first.holders] == [USAGE.pod_uid, "uid-2"]
    assert (second.uuid, second.product, second.pods, second.holders) == ("GPU-1", "NVIDIA H200", 0, ())
    assert (second.limit_watts, second.max_limit_watts) == (300, 700)
    assert (found.gpu_count, found.free_gpus, found.power_watts, found.free_power_watts) == (2, 1, 140, 70)
    assert found.last_report_time == NOW


def test_holders_are_not_known_unless_a_report_has_all_of_them() -> None:
    found = status(350, 5.0, USAGE, complete=False)
    assert {(each.pods, each.holders) for each in found.gpus} == {(None, ())}
    assert (found.gpu_count, found.free_gpus, found.power_watts, found.free_power_watts) == (2, None, 140, None)


def test_no_power_is_made_of_readings_that_say_none() -> None:
    assert status(350, -5.0).power_watts is None, "the node has restarted"
    assert status(-350, 5.0).power_watts is None, "the counter has"
    first = gpu_node_status({}, node_report(350, 5.0), NOW)
    assert [each.power_watts for each in first.gpus] == [None, None]
    one = gpu_node_status({"GPU-0": (9_000, 6.0)}, node_report(350, 5.0), NOW)
    assert ([each.power_watts for each in one.gpus], one.power_watts) == ([70, None], None)
    assert not is_newer(readings_of(node_report(0, 0.0)), node_report(350, 0.5)), "a part of the same report"
    assert is_newer(readings_of(node_report(0, 0.0)), node_report(350, 5.0))


def test_a_change_is_written_once_a_minute_and_the_rest_every_five_minutes() -> None:
    written = status(350, 5.0, USAGE)
    assert must_be_written(None, written, NOW)
    unknown = status(350, 5.0, USAGE, complete=False)
    changes = [status(410, 5.0, USAGE), status(350, 5.0), unknown, status(0, 5.0, USAGE)]
    for changed in changes:
        assert not must_be_written(written, changed, NOW + WRITE_INTERVAL - SECOND)
        assert must_be_written(written, changed, NOW + WRITE_INTERVAL)
    for alike in (written, status(390, 5.0, USAGE), status(310, 5.0, USAGE)):
        assert not must_be_written(written, alike, NOW + SIGN_OF_LIFE - SECOND)
        assert must_be_written(written, alike, NOW + SIGN_OF_LIFE)
    loaded = status(3500, 5.0, USAGE)
    assert not must_be_written(loaded, status(3800, 5.0, USAGE), NOW + WRITE_INTERVAL), "less than a tenth"
    assert must_be_written(loaded, status(3900, 5.0, USAGE), NOW + WRITE_INTERVAL)


def test_the_longest_report_of_a_hostile_agent_makes_an_object_of_128_kib_at_most() -> None:
    uuids = [f"{index:096}" for index in range(64)]
    gpus = [NodeGpu(each, 2 * 10**14, 0, 1e10, "counter", "x" * 128, 1e4, 1e4) for each in uuids]
    usages = tuple(
        replace(USAGE, gpu=each, pod_uid=f"{pod:096}", namespace="n" * 63, pod=f"{pod:0253}", time_seconds=1e10)
        for each in uuids
        for pod in range(16)
    )
    sent = NodeReport.from_json(NodeReport("n" * 253, "l", 1, tuple(gpus), usages, complete=True).to_json())
    found = gpu_node_status(dict.fromkeys(uuids, (0, 1e10 - 1)), sent, NOW)
    assert GPUNodeStatus.from_wire(found.to_wire()) == found
    assert len(found.model_dump_json(by_alias=True)) < 128 * 1024
    assert (found.gpus[0].pods, len(found.gpus[0].holders), found.power_watts) == (16, 3, Decimal(64 * 2 * 10**11))


def recent(*readings: tuple[int, float, int, float]) -> list[tuple[float, float, int] | None]:
    """Watts, seconds and index of the later report after each report of (start mJ, start s, mJ, s)."""
    backend = ModelBackend(job())
    attempt = backend.recurrences[backend.start_attempt()]
    found: list[tuple[float, float, int] | None] = []
    for index, (start_millijoules, start_seconds, millijoules, seconds) in enumerate(readings):
        gpu = GpuEnergy("GPU-0", start_millijoules, millijoules, start_seconds, seconds)
        sent = replace(report(sequence=index + 1), gpus=(gpu,))
        at = NOW + timedelta(seconds=index)
        after = with_recent_power(attempt.progress, progress_after(attempt, sent), sent.gpus, at)
        attempt = attempt.model_copy(update={"progress": after})
        power = after.gpus[0].recent
        found.append(
            None
            if power is None
            else (float(power.power_watts), float(power.seconds), (power.time - NOW) // timedelta(seconds=1))
        )
    return found


def test_the_power_is_that_since_the_report_before_and_of_the_first_report_since_the_start() -> None:
    readings = (5_000, 10.0, 5_000, 10.0), (5_000, 10.0, 1_005_000, 15.0), (5_000, 10.0, 1_205_000, 17.0)
    assert recent(*readings) == [None, (200.0, 5.0, 1), (100.0, 2.0, 2)]


def test_reports_that_come_twice_too_soon_or_without_a_new_energy_leave_the_power_and_its_time() -> None:
    first = (0, 0.0, 500_000, 2.0)
    for later in (first, (0, 0.0, 520_000, 2.9), (0, 0.0, 500_000, 9.0), (0, 0.0, 400_000, 1.0)):
        assert recent(first, later) == [(250.0, 2.0, 0)] * 2, later


def test_another_process_whose_counter_may_begin_again_has_the_power_since_its_own_start() -> None:
    before = (0, 0.0, 500_000, 2.0)
    assert recent(before, (0, 1.0, 900_000, 4.0)) == [(250.0, 2.0, 0), (300.0, 3.0, 1)]
    assert recent(before, (0, 0.0, 600_000, 1.5))[1] == (250.0, 2.0, 0)
    # Its second report is compared with its first one; a counter that began again is never compared with the old one.
    again = recent(before, (0, 1.0, 400_000, 1.5), (0, 1.0, 900_000, 4.0), (0, 1.0, 1_100_000, 6.0))
    assert again[2:] == [(300.0, 3.0, 2), (100.0, 2.0, 3)]
    behind = recent(before, (0, 0.5, 600_000, 1.5), (0, 0.5, 700_000, 3.0), (0, 0.5, 800_000, 5.0))
    assert behind[1:] == [(250.0, 2.0, 0), (280.0, 2.5, 2), (50.0, 2.0, 3)]


def test_where_reports_come_within_a_second_the_power_is_that_since_the_start_and_goes_on() -> None:
    found = recent(*((0, 0.0, 100_000 * number, number / 2) for number in range(1, 14)))
    assert found[:3] == [None, (200.0, 1.0, 1), (200.0, 1.0, 1)]
    assert found[11] == (200.0, 6.0, 11)
