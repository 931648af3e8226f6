"""The policies that apply to a request, and the messages of refusals."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents.agent_fixture import AgentFixture, until
from support.agents.pushed import push_settings, running_operator
from support.agents.scraping import metered_agent
from wattloop.gpus.agent import AgentRequestError
from wattloop.wire.node_energy import GpuBounds, NodeAnswer, Range
from wattloop.wire.training_messages import MAX_LIMIT_WATTS
from wattloop_agent import refusals
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.monitor.policy_limits import PolicyLimits, PolicyViolations, policy_violations
from wattloop_agent.refusals import Reason, RequestError

A100, H200 = "NVIDIA A100-SXM4-80GB", "NVIDIA H200"
POWER = GpuSetting.POWER_LIMIT
FLEET = GpuBounds("fleet", power_limit_watts=(150.0, 350.0), graphics_clock_megahertz=(600.0, 1300.0))
TEAM = GpuBounds("team", namespaces=("vision", "speech"), power_limit_watts=(200.0, MAX_LIMIT_WATTS))
BIG = GpuBounds("big", products=(H200,), memory_clock_megahertz=(2000.0, 2500.0))
# It admits namespaces, and bounds nothing.
CLOSED = GpuBounds("closed", namespaces=("vision",), power_limit_watts=(0.0, MAX_LIMIT_WATTS))
NODE = PolicyLimits((FLEET, TEAM, BIG))


@pytest.mark.parametrize(
    ("product", "namespace", "holding", "closed_by"),
    [
        (A100, "vision", ["fleet", "team"], []),
        (A100, "search", ["fleet", "team"], ["team"]),
        (A100, None, ["fleet", "team"], ["team"]),
        (H200, "speech", ["fleet", "team", "big"], []),
        ("NVIDIA A40", "speech", ["fleet", "team"], []),
    ],
)
def test_a_policy_applies_to_its_products_and_admits_its_namespaces(
    product: str, namespace: str | None, holding: list[str], closed_by: list[str]
) -> None:
    limits = NODE.of(product, namespace)
    assert [each.policy for each in limits.bounds] == holding
    assert [each.policy for each in limits.closed_by] == closed_by


@pytest.mark.parametrize(
    ("product", "setting", "found"),
    [
        (A100, POWER, (200.0, 350.0)),
        (A100, GpuSetting.GRAPHICS_CLOCK, (600.0, 1300.0)),
        (A100, GpuSetting.MEMORY_CLOCK, (0.0, math.inf)),
        (H200, GpuSetting.MEMORY_CLOCK, (2000.0, 2500.0)),
    ],
)
def test_a_request_must_be_within_every_policy_that_applies(product: str, setting: GpuSetting, found: Range) -> None:
    assert NODE.of(product, "vision").range(setting) == found


@pytest.mark.parametrize(
    ("namespace", "device", "allowed"),
    [
        ("vision", (100.0, 400.0), (200.0, 350.0)),
        ("vision", (250.0, 300.0), (250.0, 300.0)),
        ("vision", (400.0, 700.0), None),
        ("search", (100.0, 400.0), None),
    ],
)
def test_the_allowed_range_is_the_intersection_of_policies_and_device(
    namespace: str, device: Range, allowed: Range | None
) -> None:
    assert NODE.of(A100, namespace).narrowed(POWER, device) == allowed


@pytest.mark.parametrize(
    ("value", "violation"),
    [
        (250.0, None),
        (200.0, None),
        (350.0, None),
        (360.0, "GPUPowerPolicy fleet allows 150 to 350 watts"),
        (175.0, "GPUPowerPolicy team allows at least 200 watts"),
        (100.0, "GPUPowerPolicy fleet allows 150 to 350 watts and GPUPowerPolicy team allows at least 200 watts"),
    ],
)
def test_a_violation_names_every_policy_with_its_range(value: float, violation: str | None) -> None:
    assert NODE.of(A100, "vision").violation(POWER, value) == violation


def test_a_refusal_names_the_policys_range_and_the_devices() -> None:
    ranges = ["GPUPowerPolicy fleet allows 150 to 350 watts", "the device accepts 100 to 400 watts"]
    refused = refusals.out_of_range("GPU-1", POWER, 360.0, ranges)
    assert refused.reason is Reason.OUT_OF_RANGE
    assert refused.message == (
        "GPU GPU-1: a power limit of 360 watts is out of range: GPUPowerPolicy fleet allows 150 to 350 watts, the "
        "device accepts 100 to 400 watts"
    )


def test_the_refusal_of_a_namespace_names_the_policy_and_the_admitted_ones() -> None:
    refused = refusals.namespace_not_admitted("GPU-1", "team", ("vision", "speech"), "search")
    assert refused.reason is Reason.NOT_PERMITTED
    assert (
        "GPUPowerPolicy team lets pods of vision, speech ask for limits and clocks, not pods of namespace search"
        in refused.message
    )


def test_without_a_policy_only_the_device_limits_a_request() -> None:
    limits = PolicyLimits().of(A100, None)
    assert (limits.range(POWER), limits.narrowed(POWER, (100.0, 400.0))) == ((0.0, math.inf), (100.0, 400.0))
    assert limits.violation(POWER, 1e6) is None


ranges = st.tuples(st.floats(0, 1000), st.floats(0, 1000)).map(lambda ends: (min(ends), max(ends)))
policies = st.builds(
    GpuBounds,
    policy=st.sampled_from("abc"),
    products=st.none() | st.lists(st.sampled_from([A100, H200]), unique=True).map(tuple),
    namespaces=st.none() | st.lists(st.sampled_from(["vision", "search"]), unique=True).map(tuple),
    power_limit_watts=st.none() | ranges,
)


@given(st.lists(policies, max_size=5), st.sampled_from([A100, H200]), st.floats(0, 1000))
def test_a_value_violates_no_policy_exactly_if_it_is_within_the_range(
    bounds: list[GpuBounds], product: str, value: float
) -> None:
    limits = PolicyLimits(bounds).of(product, "vision")
    minimum, maximum = limits.range(POWER)
    assert (limits.violation(POWER, value) is None) == (minimum <= value <= maximum)


@given(st.lists(policies, max_size=5), policies, st.sampled_from([A100, H200]), st.sampled_from(["vision", "search"]))
def test_an_additional_policy_never_allows_more(
    bounds: list[GpuBounds], another: GpuBounds, product: str, namespace: str
) -> None:
    device = (100.0, 700.0)
    fewer = PolicyLimits(bounds).of(product, namespace).narrowed(POWER, device)
    more = PolicyLimits([*bounds, another]).of(product, namespace).narrowed(POWER, device)
    assert more is None or (fewer is not None and fewer[0] <= more[0] <= more[1] <= fewer[1])


def test_the_cache_stays_bounded_over_thousands_of_namespaces() -> None:
    limits = PolicyLimits((TEAM,))
    for number in range(5000):
        assert limits.of(A100, f"namespace-{number}").closed_by == (TEAM,)
    assert len(limits._cache) <= 256


PRODUCTS = {"GPU-a": A100, "GPU-h": H200}
HALF_A_MINUTE = 30.0


def lease(uuid: str = "GPU-a", setting: str = "power_limit", held: float | None = 400.0) -> dict[str, Any]:
    return {"uuid": uuid, "setting": setting, "found": 400.0, "held": held, "owner": "pod:1", "releasing": False}


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (lease(held=350.0), ""),
        (lease(held=150.0), ""),
        (lease(held=350.1), "350.1 watts: GPUPowerPolicy fleet allows 150 to 350 watts"),
        (lease(held=149.0), "149 watts: GPUPowerPolicy fleet allows 150 to 350 watts"),
        (lease(held=None), ""),
        (lease(setting="graphics_clock", held=1410.0), "1410 megahertz: GPUPowerPolicy fleet allows 600 to 1300"),
        (lease(setting="memory_clock", held=1593.0), ""),
        (lease("GPU-h", "memory_clock", 1593.0), "1593 megahertz: GPUPowerPolicy big allows 2000 to 2500 megahertz"),
        (lease("GPU-new", "memory_clock", 1593.0), ""),
    ],
)
def test_a_lease_violates_the_ranges_of_its_product_whatever_the_namespaces(
    held: dict[str, Any], expected: str
) -> None:
    found = policy_violations([held], PolicyLimits((FLEET, BIG, CLOSED)), PRODUCTS)
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

    first, second = agent_fixture.uuids[:2]
    with running_operator(answer) as operator:
        with metered_agent(agent_fixture, **push_settings(agent_fixture.folder, operator)) as agent:
            connection = agent.connection

            def violations() -> dict[str, float]:
                return agent.by_uuid("wattloop_gpu_policy_violation")

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
