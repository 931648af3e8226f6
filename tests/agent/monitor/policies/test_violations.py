"""Leases that violate a tightened policy are reported once and left."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.agents.processes import single_agent
from support.agents.pushed import running_operator
from support.agents.scraping import scraped
from support.free_ports import free_port
from support.reporting.json_web_token import json_web_token
from wattloop.gpus.agent import AgentConnection, AgentRequestError
from wattloop.wire.node_energy import GpuBounds, NodeAnswer, Range
from wattloop.wire.training_messages import MAX_LIMIT_WATTS
from wattloop_agent.monitor.policies.policy_limits import PolicyLimits
from wattloop_agent.monitor.policies.violations import PolicyViolations, policy_violations
from wattloop_agent.request_error import Reason, RequestError

A100, H200 = "NVIDIA A100-SXM4-80GB", "NVIDIA H200"
PRODUCTS = {"GPU-a": A100, "GPU-h": H200}
HALF_A_MINUTE = 30.0


def lease(uuid: str = "GPU-a", setting: str = "power_limit", held: float | None = 300.0) -> dict[str, Any]:
    return {"uuid": uuid, "setting": setting, "found": 400.0, "held": held, "owner": "pod:1", "releasing": False}


FLEET = GpuBounds("fleet", power_limit_watts=(150.0, 250.0), graphics_clock_megahertz=(600.0, 1000.0))
BIG = GpuBounds("big", products=(H200,), memory_clock_megahertz=(2000.0, 2500.0))
TEAM = GpuBounds("team", namespaces=("vision",), power_limit_watts=(0.0, MAX_LIMIT_WATTS))


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (lease(held=250.0), ""),
        (lease(held=150.0), ""),
        (lease(held=250.1), "250.1 watts: GPUPowerPolicy fleet allows 150 to 250 watts"),
        (lease(held=149.0), "149 watts: GPUPowerPolicy fleet allows 150 to 250 watts"),
        (lease(held=None), ""),
        (lease(setting="graphics_clock", held=1410.0), "1410 megahertz: GPUPowerPolicy fleet allows 600 to 1000"),
        (lease(setting="memory_clock", held=1593.0), ""),
        (lease("GPU-h", "memory_clock", 1593.0), "1593 megahertz: GPUPowerPolicy big allows 2000 to 2500 megahertz"),
        (lease("GPU-new", "memory_clock", 1593.0), ""),
    ],
)
def test_a_lease_violates_the_ranges_of_its_product_whatever_the_namespaces(
    held: dict[str, Any], expected: str
) -> None:
    found = policy_violations([held], PolicyLimits((FLEET, BIG, TEAM)), PRODUCTS)
    assert list(found) == ([(held["uuid"], held["setting"])] if expected else [])
    assert all(text.startswith(expected) for text in found.values())


def test_a_violation_is_logged_once_and_kept_while_policies_are_unknown(caplog: pytest.LogCaptureFixture) -> None:
    limits: list[PolicyLimits | None] = [PolicyLimits()]

    def now() -> PolicyLimits:
        if limits[0] is None:
            raise RequestError(Reason.UNAVAILABLE, "not known")
        return limits[0]

    violations = PolicyViolations(now, lambda: PRODUCTS)
    violations.update([lease()])
    assert (violations.found, caplog.records) == ({}, [])
    limits[0] = PolicyLimits((FLEET,))
    violations.update([lease()])
    violations.update([lease()])
    (record,) = caplog.records
    assert vars(record)["gpu"] == "GPU-a"
    assert vars(record)["owner"] == "pod:1"
    limits[0] = None
    violations.update([lease()])
    assert list(violations.found) == [("GPU-a", "power_limit")]
    limits[0] = PolicyLimits((FLEET,))
    violations.update([])
    assert violations.found == {}


def test_a_tightened_policy_leaves_held_limits_reports_them_and_bounds_the_next_request(
    agent_fixture: AgentFixture,
) -> None:
    policy: list[Range] = [(100.0, 400.0)]

    def answer(_: dict[str, Any]) -> tuple[int, bytes]:
        bounds = (GpuBounds("rack", power_limit_watts=policy[0]),)
        return 200, json.dumps(NodeAnswer(bounds=bounds).to_json()).encode()

    token = agent_fixture.folder / "token"
    token.write_text(json_web_token("agent"))
    metrics = f"127.0.0.1:{free_port()}"
    with running_operator(answer) as operator:
        environment = {
            **agent_fixture.environment,
            "WATTLOOP_AGENT_METRICS_BIND": metrics,
            "WATTLOOP_AGENT_PUSH_URL": operator.url,
            "WATTLOOP_AGENT_PUSH_TOKEN_FILE": str(token),
            "WATTLOOP_AGENT_PUSH_INTERVAL": "0.1",
            "WATTLOOP_AGENT_NODE_NAME": "node",
        }

        def violations() -> dict[str, float]:
            return {each["UUID"]: value for each, value in scraped(metrics)["wattloop_gpu_policy_violation"]}

        first, second = agent_fixture.uuids[:2]
        with (
            single_agent(agent_fixture.socket, agent_fixture.state, environment=environment, log=agent_fixture.log),
            AgentConnection(agent_fixture.socket) as connection,
        ):
            connection.hold_limit([first], 300)
            connection.hold_limit([second], 200)
            until(lambda: violations() == {first: 0, second: 0}, "neither violates a policy", HALF_A_MINUTE)
            policy[0] = (100.0, 250.0)
            until(lambda: violations() == {first: 1, second: 0}, "the first violates the policy", HALF_A_MINUTE)
            assert agent_fixture.limits == [300, 200, 400], "a limit does not move under a training"
            with pytest.raises(AgentRequestError, match="GPUPowerPolicy rack allows 100 to 250 watts"):
                connection.hold_limit([first], 300)
            assert agent_fixture.limits == [300, 200, 400]
            connection.hold_limit([first], 250)
            until(lambda: violations() == {first: 0, second: 0}, "it has asked again", HALF_A_MINUTE)
        assert agent_fixture.limits == [400, 400, 400]
    assert agent_fixture.log.read_text().count("held outside of a policy") == 1
