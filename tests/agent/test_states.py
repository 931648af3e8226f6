"""Conditions of the machine: a clear state, no change without a durable lease, no crash loop."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.agents.agent_fixture import HEARTBEAT_TIMEOUT_SECONDS, AgentFixture, until
from support.agents.processes import children_of
from support.test_sets.parameters import exhaustive_after
from wattloop.gpus.agent import AgentConnection, AgentRequestError
from wattloop.gpus.agent_process import stop_agent

pytestmark = pytest.mark.processes


@contextmanager
def agent_on(agent_fixture: AgentFixture) -> Iterator[AgentConnection]:
    with agent_fixture.running() as process, AgentConnection(agent_fixture.socket) as connection:
        power_controllers = children_of(process.pid)
        yield connection
        assert children_of(process.pid) == power_controllers, "the power controller was started again"


def refusal(connection: AgentConnection, agent_fixture: AgentFixture) -> AgentRequestError:
    with pytest.raises(AgentRequestError) as caught:
        connection.hold_limit(agent_fixture.uuids, 200)
    assert agent_fixture.limits == [400, 400, 400]
    return caught.value


def test_an_unusable_state_folder_grants_no_lease(agent_fixture: AgentFixture) -> None:
    agent_fixture.state.write_text("in the way")
    with agent_on(agent_fixture) as connection:
        assert refusal(connection, agent_fixture).reason == "StateNotDurable"
        assert len(connection.energy()) == 3, "energy can be read all the same"
        agent_fixture.state.unlink()
        connection.hold_limit(agent_fixture.uuids, 200)


def test_a_power_controller_without_permission_says_so(agent_fixture: AgentFixture) -> None:
    with agent_on(agent_fixture) as connection:
        ticket = agent_fixture.gpus.inject_fault("nvmlDeviceSetPowerManagementLimit", code=4)
        refused = refusal(connection, agent_fixture)
        assert refused.reason == "NotPermitted"
        assert "CAP_SYS_ADMIN" in refused.message
        agent_fixture.gpus.clear_fault(ticket)
        connection.hold_limit(agent_fixture.uuids, 200)


def test_a_failed_restore_is_retried_until_it_works(agent_fixture: AgentFixture) -> None:
    with agent_on(agent_fixture) as connection:
        connection.hold_limit(agent_fixture.uuids, 200)
        ticket = agent_fixture.gpus.inject_fault(
            "nvmlDeviceSetPowerManagementLimit", code=999, gpu=agent_fixture.uuids[0]
        )
        with pytest.raises(AgentRequestError, match="the agent keeps trying") as caught:
            connection.release()
        assert caught.value.reason == "NotRestored"
        assert agent_fixture.limits == [200, 400, 400]
        agent_fixture.gpus.clear_fault(ticket)
        assert connection.release() in ([], agent_fixture.uuids[:1])
        assert agent_fixture.limits == [400, 400, 400]


# One of each kind that the agent distinguishes, and some of the others; test_errors.py has the kind of each code.
UNKNOWN_ERROR = 999
NVML_CODES = (1, 2, 3, 4, 6, 7, 9, 12, 15, 16, UNKNOWN_ERROR)
# All that the two parts call; the last test here holds the list to what they do call.
NVML_CALLS = (
    "nvmlDeviceSetPowerManagementLimit",
    "nvmlInitWithFlags",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetName",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetSupportedMemoryClocks",
    "nvmlDeviceGetSupportedGraphicsClocks",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceSetGpuLockedClocks",
    "nvmlDeviceResetGpuLockedClocks",
    "nvmlDeviceSetMemoryLockedClocks",
    "nvmlDeviceResetMemoryLockedClocks",
)
FORESEEN = {
    "DeviceFailed",
    "GpuLost",
    "NoDriver",
    "NotPermitted",
    "NotRestored",
    "NotSupported",
    "OutOfRange",
    "UnknownGpu",
}


def ask_everything(connection: AgentConnection, agent_fixture: AgentFixture) -> set[str]:
    """The reasons with which the agent refuses, asked for each thing that it does."""
    reasons = set()
    asking = (
        connection.gpus,
        connection.energy,
        lambda: connection.hold_limit(agent_fixture.uuids, 200),
        lambda: connection.hold_clocks(agent_fixture.uuids, 900),
        lambda: connection.hold_clocks(agent_fixture.uuids, 1593, domain="memory"),
        connection.release,
    )
    for ask in asking:
        try:
            ask()
        except AgentRequestError as refused:
            reasons.add(refused.reason)
    return reasons


def as_found(connection: AgentConnection, agent_fixture: AgentFixture) -> bool:
    try:
        connection.release()
    except AgentRequestError:
        return False
    gpus = agent_fixture.gpus.describe().gpus
    locked = [gpu.locked_graphics_clocks_megahertz or gpu.locked_memory_clocks_megahertz for gpu in gpus]
    return agent_fixture.limits == [400, 400, 400] and not any(locked)


def fail_for_a_while(connection: AgentConnection, agent_fixture: AgentFixture, function: str, code: int) -> None:
    # So that the calls by which NVML is opened are made again, too.
    agent_fixture.gpus.restart_driver()
    ticket = agent_fixture.gpus.inject_fault(function, code=code)
    assert ask_everything(connection, agent_fixture) <= FORESEEN
    assert ask_everything(connection, agent_fixture) <= FORESEEN
    agent_fixture.gpus.clear_fault(ticket)
    until(lambda: as_found(connection, agent_fixture), f"as found after code {code} of {function}")


def test_the_agent_reports_and_survives_an_error_of_each_nvml_call(agent_fixture: AgentFixture) -> None:
    with agent_on(agent_fixture) as connection:
        for function in NVML_CALLS:
            fail_for_a_while(connection, agent_fixture, function, UNKNOWN_ERROR)
        until(lambda: not ask_everything(connection, agent_fixture), "everything works again")
    assert agent_fixture.limits == [400, 400, 400]


@pytest.mark.parametrize("function", exhaustive_after(NVML_CALLS))
def test_the_agent_reports_and_survives_any_error_of_any_nvml_call(agent_fixture: AgentFixture, function: str) -> None:
    with agent_on(agent_fixture) as connection:
        for code in NVML_CODES:
            fail_for_a_while(connection, agent_fixture, function, code)
        until(lambda: not ask_everything(connection, agent_fixture), "everything works again")
    assert agent_fixture.limits == [400, 400, 400]


def test_the_nvml_calls_tested_are_those_that_the_agent_makes(agent_fixture: AgentFixture) -> None:
    with agent_on(agent_fixture) as connection:
        assert ask_everything(connection, agent_fixture) == set()
    made = set(agent_fixture.gpus.describe().calls) - {"nvmlShutdown"}
    assert made <= set(NVML_CALLS)


def test_a_driver_that_hangs_stops_neither_the_socket_nor_the_restoring(agent_fixture: AgentFixture) -> None:
    agent_fixture.heartbeat_timeout_seconds = HEARTBEAT_TIMEOUT_SECONDS
    process = agent_fixture.start()
    with AgentConnection(agent_fixture.socket) as connection:
        connection.hold_limit(agent_fixture.uuids[:1], 300)
        ticket = agent_fixture.gpus.inject_fault("nvmlDeviceSetPowerManagementLimit", delay_seconds=60, count=1)
        with pytest.raises(AgentRequestError) as caught:
            connection.hold_limit(agent_fixture.uuids, 200)
        assert caught.value.reason == "Unavailable"
        agent_fixture.gpus.clear_fault(ticket)
        assert connection.release() == agent_fixture.uuids[:1]
        assert agent_fixture.limits == [400, 400, 400]
    assert stop_agent(process) == 0


def test_a_driver_restart_during_a_lease_is_accepted_until_the_next_request(agent_fixture: AgentFixture) -> None:
    with agent_on(agent_fixture) as connection:
        connection.hold_limit(agent_fixture.uuids, 200)
        connection.hold_clocks(agent_fixture.uuids, 900)
        agent_fixture.gpus.restart_driver()
        # The first that asks finds out that NVML has to be opened again.
        until(lambda: ask_everything(connection, agent_fixture) == set(), "the driver is found again")
        connection.hold_limit(agent_fixture.uuids, 250)
        assert agent_fixture.limits == [250, 250, 250]
        agent_fixture.gpus.restart_driver()
        until(lambda: as_found(connection, agent_fixture), "given back")
        assert [lease for lease in connection.leases() if lease.yours] == []
    assert agent_fixture.limits == [400, 400, 400]


def test_a_limit_set_by_another_actor_is_left(agent_fixture: AgentFixture) -> None:
    with agent_on(agent_fixture) as connection:
        connection.hold_limit(agent_fixture.uuids, 200)
        agent_fixture.gpus.set_power_limit_as_another_actor(0, 250.0)
        connection.release()
        assert agent_fixture.limits == [250, 400, 400]
    assert "another actor has set it" in agent_fixture.log.read_text()


def test_a_read_only_folder_is_refused_before_anything_is_changed(agent_fixture: AgentFixture) -> None:
    agent_fixture.state.mkdir()
    # Root writes to a folder without write permission; only a read-only mount holds it off.
    mount = (
        f"mount --bind {agent_fixture.state} {agent_fixture.state} && mount -o remount,ro,bind {agent_fixture.state}"
    )
    if subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets us make no read-only mount")
    agent = (
        f"{sys.executable} -m wattloop_agent --socket {agent_fixture.socket} --state-directory {agent_fixture.state} "
        f"--ready-descriptor 1 2>>{agent_fixture.log}"
    )
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f"{mount} && exec {agent}"],
        env=agent_fixture.environment,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"ready\n", agent_fixture.log.read_text()
        with AgentConnection(agent_fixture.socket) as connection:
            assert refusal(connection, agent_fixture).reason == "StateNotDurable"
        assert stop_agent(process) == 0


def test_of_two_agents_on_a_node_one_holds_and_the_other_takes_over_later(agent_fixture: AgentFixture) -> None:
    first = agent_fixture.start()
    other = AgentFixture(agent_fixture.folder / "second", agent_fixture.gpus)
    other.folder.mkdir()
    with other.running() as process, AgentConnection(other.socket) as second:
        power_controllers = children_of(process.pid)
        with AgentConnection(agent_fixture.socket) as connection:
            connection.hold_limit(agent_fixture.uuids, 200)
            with pytest.raises(AgentRequestError) as caught:
                second.hold_limit(agent_fixture.uuids, 150)
            assert caught.value.reason == "AnotherAgent"
            assert f"state folder {agent_fixture.state}" in caught.value.message
            assert len(second.energy()) == 3, "energy can be read all the same"
            assert agent_fixture.limits == [200, 200, 200]
        assert stop_agent(first) == 0
        assert second.hold_limit(agent_fixture.uuids, 150)[0].found_watts == 400
        assert agent_fixture.limits == [150, 150, 150]
        assert children_of(process.pid) == power_controllers, "the power controller was started again"
    assert agent_fixture.limits == [400, 400, 400]
    assert other.log.read_text().count("no lease can be granted") == 1, "logged once"
