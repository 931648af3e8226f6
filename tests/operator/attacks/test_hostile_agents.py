"""A node's agent that reports pods of another node, or pods that nobody has, beside that node's own agent."""

import itertools
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.reporting.node_api import NODE, USAGE, NodeApi, report, running_node_api, token_of
from support.test_sets.parameters import exhaustive_after
from wattloop.wire.node_energy import MAX_POD_GPU_USAGES, PodGpuUsage
from wattloop_operator.cluster.reported_objects import LOOK_UPS

HOSTILE = "node-2"
SERVICE_ACCOUNT = "system:serviceaccount:wattloop-agent:wattloop-agent"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[NodeApi]:
    with running_node_api(tmp_path) as running:
        running.server.tokens["hostile"] = token_of(SERVICE_ACCOUNT, node=HOSTILE)
        yield running


def attack(api: NodeApi, *usages: PodGpuUsage, **fields: Any) -> tuple[int, Any]:
    return api.post(report(*usages, node=HOSTILE, **fields), token="hostile", node=HOSTILE)


CLAIMS = {
    "its pod": USAGE,
    "its end": replace(USAGE, ended=True, energy_millijoules=10**12),
    "its uid with a pod of the own node": replace(USAGE, pod="web"),
    "its uid in another namespace": replace(USAGE, namespace="hostile"),
    "its name with another uid": replace(USAGE, pod_uid="another"),
    "its recurrence by the name of a pod that is gone": replace(USAGE, pod="digits-0-gone", pod_uid="gone"),
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("is_known", [True, False])
def test_no_claim_of_another_nodes_agent_changes_the_energy_of_a_pod(api: NodeApi, claim: str, is_known: bool) -> None:
    if is_known:
        assert api.post(report(USAGE))[0] == 200
    assert attack(api, CLAIMS[claim], ledger="ledger")[0] in {200, 403}
    assert api.post(report(replace(USAGE, energy_millijoules=6_000, time_seconds=7.0)))[0] == 200
    assert api.stored() == {"uid-1": 6_000}
    assert {each.node for each in api.store.pod_energies.of_job("job-uid", 0)[0, 0]} == {NODE}


def test_an_agent_that_reports_a_pod_before_it_has_a_node_keeps_no_report_of_its_own_agent_out(api: NodeApi) -> None:
    pod = api.server.objects["pods/digits-0-abc"]
    waiting = json.loads(json.dumps(pod)) | {"spec": {}}
    api.server.objects["pods/digits-0-abc"] = waiting
    assert attack(api, USAGE)[0] == 403
    api.server.objects["pods/digits-0-abc"] = pod
    assert api.post(report(USAGE)) == (200, {"acknowledged": [], "bounds": None, "limits": []})
    assert api.stored() == {"uid-1": 5_000}


def invented(numbers: Iterator[int]) -> list[PodGpuUsage]:
    return [
        replace(USAGE, pod=f"pod-{number}-x", pod_uid=f"invented-{number}")
        for number in itertools.islice(numbers, MAX_POD_GPU_USAGES)
    ]


@pytest.mark.parametrize("reports", exhaustive_after([8, 50]))
def test_an_agent_that_invents_pods_asks_the_api_server_at_a_bounded_rate_and_delays_no_other_agent(
    api: NodeApi, reports: int
) -> None:
    def seconds_of_a_report(number: int) -> float:
        began = time.monotonic()
        sent = replace(USAGE, energy_millijoules=5_000 + number, time_seconds=7.0 + number)
        assert api.post(report(sent, sequence=2 + number))[0] == 200
        return time.monotonic() - began

    alone = max(map(seconds_of_a_report, range(5)))
    began, before = time.monotonic(), sum(api.server.asked.values())
    numbers = itertools.count()
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(attack, api, *invented(numbers)) for _ in range(reports)]
        beside = max(map(seconds_of_a_report, range(5, 10)))
        codes = sorted(each.result()[0] for each in answers)
    asked = sum(api.server.asked.values()) - before
    seconds = time.monotonic() - began
    print(f"a victim's report: {alone * 1000:.0f} ms alone, {beside * 1000:.0f} ms beside; {asked} requests; {codes}")
    assert codes == [200] + [429] * (reports - 1)
    # A pod and its recurrence each.
    assert asked <= 2 * (LOOK_UPS.burst + seconds * LOOK_UPS.per_second) + 10
    assert api.stored() == {"uid-1": 5_009}
    assert attack(api, *invented(numbers))[1].startswith("too many requests of ")
