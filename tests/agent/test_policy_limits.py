"""A real agent under policies: refusals, the reported range, and runs under them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.agents.agent_fixture import AgentFixture
from wattloop.gpus.agent import AgentConnection, AgentRequestError, GraphicsClocks
from wattloop.run.held_gpus import ProcessGpus
from wattloop.run.limit_choice import LimitChoice
from wattloop.wire.environment import RunEnvironment
from wattloop.wire.node_energy import GpuBounds, NodeAnswer
from wattloop.wire.training_messages import Report

FLEET = GpuBounds("fleet", power_limit_watts=(150.0, 300.0), graphics_clock_megahertz=(600.0, 1000.0))


def write(agent_fixture: AgentFixture, content: str) -> None:
    folder = agent_fixture.state / "monitor"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bounds.json").write_text(content)


@contextmanager
def agent_under(agent_fixture: AgentFixture, *bounds: GpuBounds, **settings: object) -> Iterator[AgentConnection]:
    write(agent_fixture, json.dumps(NodeAnswer(bounds=bounds).to_json()))
    with agent_fixture.running(**settings), AgentConnection(agent_fixture.socket) as connection:
        yield connection


def refusal(connection: AgentConnection, uuids: list[str], watts: float) -> AgentRequestError:
    with pytest.raises(AgentRequestError) as refused:
        connection.hold_limit(uuids, watts)
    return refused.value


def test_a_limit_outside_of_a_policy_is_refused_with_both_ranges_and_changes_nothing(
    agent_fixture: AgentFixture,
) -> None:
    with agent_under(agent_fixture, FLEET) as connection:
        refused = refusal(connection, agent_fixture.uuids, 350)
        assert refused.reason == "OutOfRange"
        assert "GPUPowerPolicy fleet allows 150 to 300 watts, the device accepts 100 to 400 watts" in refused.message
        assert agent_fixture.limits == [400, 400, 400]
        connection.hold_limit(agent_fixture.uuids, 300)
        assert agent_fixture.limits == [300, 300, 300]


def test_a_caller_sees_the_range_that_policies_and_power_controller_allow(agent_fixture: AgentFixture) -> None:
    with agent_under(agent_fixture, FLEET, minimum_power_limit=200) as connection:
        for gpu in connection.gpus():
            assert (gpu.power_limits.minimum_watts, gpu.power_limits.maximum_watts) == (100, 400)
            assert gpu.power_limits.allowed_watts == (200, 300)


def test_a_caller_sees_the_clocks_that_the_gpu_has_and_those_that_policies_and_power_controller_allow(
    agent_fixture: AgentFixture,
) -> None:
    with agent_under(agent_fixture, FLEET, minimum_graphics_clock=750) as connection:
        for gpu in connection.gpus():
            assert gpu.clocks == GraphicsClocks(tuple(range(210, 1411, 15)), (750, 1000))
    with agent_under(agent_fixture, GpuBounds("team", namespaces=("vision",))) as connection:
        clocks = connection.gpus()[0].clocks
        assert clocks.allowed_megahertz is None


def test_a_run_measures_no_limit_outside_of_the_policies(agent_fixture: AgentFixture) -> None:
    with agent_under(agent_fixture, FLEET):
        gpus = ProcessGpus(str(agent_fixture.socket))
        gpus.begin()
        LimitChoice(RunEnvironment(), gpus, None).begin()
        assert agent_fixture.limits == [300, 300, 300]
        assert gpus.max_power_limit_watts == 1200, "what a second is worth does not depend on a policy"
        gpus.end()


def test_a_run_of_an_unadmitted_namespace_continues_without_a_limit(agent_fixture: AgentFixture) -> None:
    with agent_under(agent_fixture, GpuBounds("team", namespaces=("vision",))) as connection:
        limits = connection.gpus()[0].power_limits
        assert limits.allowed_watts is None
        refused = refusal(connection, agent_fixture.uuids, 300)
        assert (refused.reason, "GPUPowerPolicy team" in refused.message) == ("NotPermitted", True)
        gpus = ProcessGpus(str(agent_fixture.socket))
        gpus.begin()
        LimitChoice(RunEnvironment(), gpus, None).begin()
        assert "GPUPowerPolicy team lets pods of vision ask" in gpus.refusal
        gpus.hold(250.0)
        assert gpus.limit_watts is None
        assert len(gpus.energy()) == 3
        gpus.end()
        assert agent_fixture.limits == [400, 400, 400]


def test_a_run_reports_why_a_limit_was_refused(agent_fixture: AgentFixture) -> None:
    with agent_under(agent_fixture, FLEET):
        gpus = ProcessGpus(str(agent_fixture.socket))
        gpus.begin()
        gpus.hold(120.0)
        assert "GPUPowerPolicy fleet allows 150 to 300 watts, the device accepts 100 to 400 watts" in gpus.refusal
        assert Report.from_json(Report("p", 1, 0.0, power_limit_refusal=gpus.refusal).to_json())
        gpus.hold(200.0)
        assert (gpus.limit_watts, gpus.refusal) == (200, "")
        gpus.end()


def test_two_policies_without_a_common_range_are_both_named(agent_fixture: AgentFixture) -> None:
    high = GpuBounds("high", power_limit_watts=(350.0, 400.0))
    with agent_under(agent_fixture, FLEET, high):
        gpus = ProcessGpus(str(agent_fixture.socket))
        gpus.begin()
        LimitChoice(RunEnvironment(), gpus, None).begin()
        assert "GPUPowerPolicy fleet allows 150 to 300 watts" in gpus.refusal
        assert agent_fixture.limits == [400, 400, 400]
        gpus.end()


def test_a_clock_is_locked_at_a_step_within_the_policy(agent_fixture: AgentFixture) -> None:
    with agent_under(agent_fixture, FLEET) as connection:
        held = connection.hold_clocks(agent_fixture.uuids[:1], 1000)
        assert [each.held_megahertz for each in held] == [990], "1005 is nearer, and not allowed"
        with pytest.raises(AgentRequestError) as refused:
            connection.hold_clocks(agent_fixture.uuids[:1], 1200)
        assert (
            "GPUPowerPolicy fleet allows 600 to 1000 megahertz, the device accepts 210 to 1410" in refused.value.message
        )
        assert agent_fixture.gpus.describe().gpus[0].locked_graphics_clocks_megahertz == (990, 990)
        connection.hold_clocks(agent_fixture.uuids[:1], 1593, domain="memory")


def test_a_damaged_policy_file_closes_the_node_except_for_energy_and_releases(agent_fixture: AgentFixture) -> None:
    write(agent_fixture, '{"bounds": [{"pol')
    with agent_fixture.running(), AgentConnection(agent_fixture.socket) as connection:
        refused = refusal(connection, agent_fixture.uuids, 300)
        assert refused.reason == "Unavailable"
        assert str(Path("monitor") / "bounds.json") in refused.message
        limits = connection.gpus()[0].power_limits
        assert limits.allowed_watts is None
        assert len(connection.energy()) == 3
        assert connection.release() == []
        assert agent_fixture.limits == [400, 400, 400]
