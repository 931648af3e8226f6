"""The status of a GPUNode follows from two reports of an agent, and is written when it differs enough."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from support.reporting.node_api import GPU, NODE, USAGE
from wattloop.wire.node_energy import NodeGpu, NodeReport, PodGpuUsage
from wattloop_operator.api.gpu_node import GPUNodeStatus
from wattloop_operator.reconcile.energy.gpu_node_status import (
    SIGN_OF_LIFE,
    WRITE_INTERVAL,
    gpu_node_status,
    is_newer,
    must_be_written,
    readings_of,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
OTHER = replace(GPU, uuid="GPU-1", enforced_power_limit_watts=300.0, max_power_limit_watts=700.0)


def report(joules: int, seconds: float, *usages: PodGpuUsage, complete: bool = True) -> NodeReport:
    """After some joules on each of two GPUs."""
    gpus = (
        replace(each, energy_millijoules=9_000 + 1000 * joules, time_seconds=6.0 + seconds) for each in (OTHER, GPU)
    )
    return NodeReport(NODE, "ledger", 1, tuple(gpus), usages, complete=complete)


def status(joules: int, seconds: float, *usages: PodGpuUsage, complete: bool = True) -> GPUNodeStatus:
    """After a report with these joules, of which the one before had none."""
    return gpu_node_status(readings_of(report(0, 0.0)), report(joules, seconds, *usages, complete=complete), NOW)


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
    first = gpu_node_status({}, report(350, 5.0), NOW)
    assert [each.power_watts for each in first.gpus] == [None, None]
    one = gpu_node_status({"GPU-0": (9_000, 6.0)}, report(350, 5.0), NOW)
    assert ([each.power_watts for each in one.gpus], one.power_watts) == ([70, None], None)
    assert not is_newer(readings_of(report(0, 0.0)), report(350, 0.5)), "a part of the same report"
    assert is_newer(readings_of(report(0, 0.0)), report(350, 5.0))


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
