"""The agent pushes usages to its operator: none is lost or counted twice."""

import logging
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents.pushed import USAGE, MemoryBounds, MemoryLedger, OperatorStandIn, accepting, running_operator
from support.control_plane.certificates import CertificateAuthority
from support.free_ports import free_port
from support.reporting.json_web_token import json_web_token
from support.reporting.node_api import NODE, NodeApi, running_node_api
from wattloop.errors import OperationError
from wattloop.wire.node_energy import MAX_POD_GPU_USAGES, GpuBounds, NodeAnswer, NodeGpu, NodeReport, PodGpuUsage
from wattloop_agent.monitor.gpu_sampler import GpuStatus
from wattloop_agent.monitor.push.pusher import MAX_WAIT_SECONDS, NodeReportApi, Pusher, pages, wait_seconds, with_limits
from wattloop_operator.http.certificates import ServingCertificate

BOUNDS = (GpuBounds("rack", None, None, (100.0, 300.0)),)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(json_web_token("agent") + "\n")
    return file


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[NodeApi]:
    """The operator's real reporting API."""
    with running_node_api(tmp_path, bounds=BOUNDS) as api:
        yield api


def pusher_of(
    url: str, token: Path, ledger: MemoryLedger | None = None, bounds: MemoryBounds | None = None, **more: Any
) -> Pusher:
    api = NodeReportApi(url, token)
    return Pusher(api, NODE, ledger or MemoryLedger(), bounds or MemoryBounds(), 5.0, **{"chance": lambda: 0.5, **more})


def free_port_url() -> str:
    return f"http://127.0.0.1:{free_port()}"


def test_the_operator_stores_the_ledgers_usages(operator: NodeApi, token: Path) -> None:
    ledger, bounds = MemoryLedger(), MemoryBounds()
    pusher = pusher_of(operator.url, token, ledger, bounds, clock=lambda: 7.0)
    assert pusher.push() == 5.0
    assert operator.stored() == {"uid-1": 5_000}
    assert bounds.replaced == [BOUNDS]
    assert (pusher.state.delivered_seconds, pusher.state.failures, pusher.state.problem) == (7.0, 0, "")


def test_an_ended_usage_is_pushed_until_acknowledged_and_then_forgotten(operator: NodeApi, token: Path) -> None:
    ledger = MemoryLedger()
    pusher = pusher_of(operator.url, token, ledger)
    ledger.use(1_000, ended=True)
    pusher.push()
    assert operator.stored() == {"uid-1": 6_000}
    assert ledger.entries == []


def test_a_report_has_the_power_limits_that_are_known(operator: NodeApi, token: Path) -> None:
    limits = [GpuStatus("GPU-0", "H200", 1.0, enforced_power_limit_watts=500.0, max_power_limit_watts=700.0)]
    pusher_of(operator.url, token, limits=lambda: limits).push()
    ((stored,),) = operator.store.pod_energies.of_job("job-uid", 0).values()
    assert stored.max_power_limit_watts == 700.0
    gpus = [NodeGpu(uuid, 1, 0, 1.0, "counter") for uuid in ("GPU-0", "GPU-1")]
    known, unknown = with_limits(gpus, limits)
    assert (known.max_power_limit_watts, known.enforced_power_limit_watts) == (700.0, 500.0)
    assert unknown == gpus[1]


def test_a_report_is_complete_if_the_assignments_are_known_and_it_has_all_of_them(token: Path) -> None:
    ledger, known = MemoryLedger(), [False]
    with running_operator() as operator:
        pusher = pusher_of(operator.url, token, ledger, are_assignments_known=lambda: known[0])
        pusher.push()
        known[0] = True
        pusher.push()
        ledger.entries = [replace(USAGE, pod_uid=str(index)) for index in range(MAX_POD_GPU_USAGES + 1)]
        pusher.push()
    assert [each["complete"] for each in operator.reports] == [False, True, False, False]


class OperatorByName:
    """An operator behind a stable name, like a Service in a cluster."""

    def __init__(self, url: str, token: Path) -> None:
        self.url = url
        self._token = token

    def send(self, report: NodeReport) -> NodeAnswer:
        return NodeReportApi(self.url, self._token).send(report)


def test_an_operator_that_is_away_for_an_hour_loses_nothing(tmp_path: Path, token: Path) -> None:
    ledger, service = MemoryLedger(), OperatorByName("", token)
    pusher = Pusher(service, NODE, ledger, MemoryBounds(), 5.0, chance=lambda: 0.5)
    with running_node_api(tmp_path) as operator:
        service.url = operator.url
        pusher.push()
    waits = []
    for minute in range(60):
        ledger.use(1_000, ended=minute >= 30)
        waits.append(pusher.push())
    assert waits[:3] == [7.5, 15.0, 30.0]
    assert max(waits) == 45.0
    assert pusher.state.failures == 60
    with running_node_api(tmp_path) as restarted:
        service.url = restarted.url
        assert pusher.push() == 5.0
        assert restarted.stored() == {"uid-1": 65_000}
    assert ledger.entries == []


def test_lost_answers_change_nothing(operator: NodeApi, token: Path) -> None:
    class LosesAnswers:
        def __init__(self) -> None:
            self.random = random.Random(3)
            self.api = NodeReportApi(operator.url, token)

        def send(self, report: NodeReport) -> NodeAnswer:
            if self.random.random() < 0.3:
                raise OperationError("request lost")
            answer = self.api.send(report)
            if self.random.random() < 0.3:
                raise OperationError("answer lost")
            return answer

    ledger = MemoryLedger()
    pusher = Pusher(LosesAnswers(), NODE, ledger, MemoryBounds(), 5.0)
    for second in range(30):
        ledger.use(1_000, ended=second == 29)
        pusher.push()
    while ledger.entries:
        pusher.push()
    assert operator.stored() == {"uid-1": 35_000}


def test_a_large_ledger_is_pushed_in_several_reports(operator: NodeApi, token: Path) -> None:
    # No more pods than the operator looks up at once.
    of_pods = [replace(USAGE, pod_uid=f"other-{number}", pod="web", ended=True) for number in range(750)]
    ended = [replace(each, container=container) for each in of_pods for container in ("train", "beside")]
    ledger = MemoryLedger([USAGE, *ended])
    pusher_of(operator.url, token, ledger).push()
    assert ledger.entries == [USAGE]
    assert operator.stored() == {"uid-1": 5_000}


def test_a_ledger_replaced_during_a_push_is_pushed_with_its_own_id(operator: NodeApi, token: Path) -> None:
    class Replaced(MemoryLedger):
        def gpus(self) -> Any:
            if self.id == "ledger":
                self.id, self.entries = "another", [replace(USAGE, energy_millijoules=7)]
            return super().gpus()

    pusher_of(operator.url, token, Replaced()).push()
    (stored,) = operator.store.pod_energies.of_job("job-uid", 0).get((0, 0), ())
    assert (stored.ledger, stored.energy_millijoules) == ("another", 7)


def test_the_token_is_read_for_each_report(token: Path) -> None:
    with running_operator() as operator:
        pusher = pusher_of(operator.url, token)
        pusher.push()
        token.write_text("rotated")
        pusher.push()
    assert operator.tokens == [f"Bearer {json_web_token('agent')}", "Bearer rotated"]
    assert [each["sequence"] for each in operator.reports] == [1, 2]
    assert operator.reports[0]["path"] == f"/v1/nodes/{NODE}/energy"


def test_the_certificate_authority_is_read_for_each_report(tmp_path: Path, token: Path) -> None:
    authority, trusted = CertificateAuthority(), tmp_path / "ca.crt"
    pair = authority.server(["127.0.0.1"], ["operator.example"])
    trusted.write_bytes(CertificateAuthority().certificate)
    certificate = ServingCertificate(*pair.write(tmp_path))
    with running_node_api(tmp_path, certificate=certificate) as operator:
        pusher = Pusher(NodeReportApi(operator.url, token, trusted), NODE, MemoryLedger(), MemoryBounds(), 5.0)
        pusher.push()
        assert "CERTIFICATE_VERIFY_FAILED" in pusher.state.problem
        assert operator.stored() == {}
        trusted.write_bytes(authority.certificate)
        pusher.push()
        assert operator.stored() == {"uid-1": 5_000}


def test_unknown_bounds_leave_the_current_ones_in_force(token: Path) -> None:
    bounds = MemoryBounds()
    with running_operator() as operator:
        pusher_of(operator.url, token, bounds=bounds).push()
    assert bounds.replaced == []


def test_a_pod_that_was_not_in_the_report_is_not_forgotten(token: Path) -> None:
    ledger = MemoryLedger([replace(USAGE, ended=True)])

    def acknowledge_more(_: dict[str, Any]) -> tuple[int, bytes]:
        ledger.entries.append(replace(USAGE, pod_uid="uid-2", ended=True))
        return 200, b'{"acknowledged": ["uid-1", "uid-2"], "bounds": null}'

    with running_operator(acknowledge_more) as operator:
        pusher_of(operator.url, token, ledger).push()
    assert [each.pod_uid for each in ledger.entries] == ["uid-2"]


FAILURES = {
    "refused": (
        lambda _: (403, b'{"detail": "runs on node a"}'),
        'refused with HTTP 403 Forbidden: {"detail": "runs on node a"}',
    ),
    "redirected": (lambda _: (302, b""), "refused with HTTP 302"),
    "busy": (lambda _: (503, b"{}"), "refused with HTTP 503"),
    "no JSON": (lambda _: (200, b"<html>"), "invalid answer"),
    "no answer": (lambda _: (200, b'{"acknowledged": 7}'), "acknowledged: found 7, expected a list"),
    "too deep": (lambda _: (200, b"[" * 100_000), "invalid answer"),
    "too long": (lambda _: (200, b" " * (4 * 1024 * 1024 + 1)), "its answer has more than 4194304 bytes"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failed_push_is_reported_and_retried(case: str, token: Path, caplog: pytest.LogCaptureFixture) -> None:
    answer, message = FAILURES[case]
    ledger = MemoryLedger()
    with running_operator(answer) as operator, caplog.at_level(logging.INFO):
        pusher = pusher_of(operator.url, token, ledger)
        assert pusher.push() == 7.5
        assert message in pusher.state.problem
        pusher.push()
        operator.answer = accepting
        assert pusher.push() == 5.0
    assert (pusher.state.failures, pusher.state.problem) == (2, "")
    assert ledger.entries == [USAGE]
    # One line at the start of the failures and one at the end, without the token.
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "agent" not in str(getattr(caplog.records[0], "problem", ""))


def test_an_unreachable_operator_and_a_missing_token_are_reported(tmp_path: Path, token: Path) -> None:
    nowhere = pusher_of(free_port_url(), token)
    nowhere.push()
    assert "Connection refused" in nowhere.state.problem
    tokenless = pusher_of(free_port_url(), tmp_path / "missing")
    tokenless.push()
    assert "No such file or directory" in tokenless.state.problem


def test_an_unexpected_error_does_not_stop_pushing(token: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryLedger):
        def gpus(self) -> Any:
            raise RuntimeError("dictionary changed size during iteration")

    pusher = pusher_of(free_port_url(), token, Broken())
    assert pusher.push() == 7.5
    assert pusher.state.problem == "RuntimeError: dictionary changed size during iteration"


def test_an_ended_usage_is_pushed_immediately(token: Path) -> None:
    ledger = MemoryLedger()

    def ends(_: dict[str, Any]) -> tuple[int, bytes]:
        if len(operator.reports) == 1:
            ledger.use(1_000, ended=True)
            return 200, b'{"acknowledged": []}'
        return 200, b'{"acknowledged": ["uid-1"]}'

    with running_operator(ends) as operator:
        pusher = Pusher(NodeReportApi(operator.url, token), NODE, ledger, MemoryBounds(), 3600.0)
        pusher.start()
        wait_for_reports(operator, 2)
        pusher.stop()
    assert operator.reports[1]["usages"][0]["ended"] is True


def wait_for_reports(operator: OperatorStandIn, number: int) -> None:
    while len(operator.reports) < number:
        assert operator.arrived.wait(60)
        operator.arrived.clear()


PODS = st.lists(st.integers(1, 6), max_size=12)


def usages_of(pods: list[int]) -> list[PodGpuUsage]:
    return [
        PodGpuUsage(f"uid-{pod}", "team", f"pod-{pod}", "train", f"GPU-{gpu}", False, 1, 0, 0.0, 1.0, True)
        for pod, gpus in enumerate(pods)
        for gpu in range(gpus)
    ]


@given(PODS, st.integers(6, 10))
def test_all_usages_of_a_pod_are_on_one_page(pods: list[int], limit: int) -> None:
    everything = usages_of(pods)
    filled = pages(everything, limit)
    assert sorted(chain.from_iterable(filled), key=lambda each: each.key) == sorted(
        everything, key=lambda each: each.key
    )
    assert all(len(page) <= limit for page in filled)
    assert all(page for page in filled[1:])
    pages_of_pod = Counter(pod for page in filled for pod in {each.pod_uid for each in page})
    assert set(pages_of_pod.values()) <= {1}


@given(st.integers(1, 30), st.integers(1, 5))
def test_a_pod_with_more_usages_than_a_page_is_split(gpus: int, limit: int) -> None:
    filled = pages(usages_of([gpus]), limit)
    assert sum(len(page) for page in filled) == gpus
    assert all(len(page) <= limit for page in filled)


INTERVALS = st.floats(0.1, 600)
CHANCES = st.floats(0, 1)


@given(INTERVALS, CHANCES)
def test_without_failures_the_wait_is_the_interval_with_jitter(interval: float, chance: float) -> None:
    assert 0.9 * interval <= wait_seconds(interval, 0, chance) <= 1.1 * interval * (1 + 1e-9)


@given(INTERVALS, st.integers(1, 10_000), CHANCES)
def test_the_wait_grows_with_failures_up_to_a_maximum(interval: float, failures: int, chance: float) -> None:
    maximum = max(MAX_WAIT_SECONDS, interval)
    waited = wait_seconds(interval, failures, chance)
    assert min(interval, maximum / 2) <= waited <= maximum
    assert wait_seconds(interval, failures + 1, chance) >= waited
