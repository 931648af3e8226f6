"""What the machine may be like: a clear state, no change without a durable lease, never a crash loop."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bench import Bench
from processes import children_of, single_agent

from wattloop.agent import AgentConnection, AgentRefused
from wattloop.agent_process import end_agent, start_agent

pytestmark = pytest.mark.processes


@contextmanager
def agent_on(bench: Bench) -> Iterator[AgentConnection]:
    with (
        single_agent(bench.socket, bench.state, environment=bench.environment, log=bench.log) as process,
        AgentConnection(bench.socket) as connection,
    ):
        setters = children_of(process.pid)
        yield connection
        assert children_of(process.pid) == setters, "the setter was started again"


def refusal(connection: AgentConnection, bench: Bench) -> AgentRefused:
    with pytest.raises(AgentRefused) as caught:
        connection.hold_limit(bench.uuids, 200)
    assert bench.limits == [400, 400, 400]
    return caught.value


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 1, "sha256": "", "leases": [{}]}', bytes(range(256)) * 4])
def test_a_corrupt_lease_file_is_set_aside_and_said(bench: Bench, content: bytes) -> None:
    bench.state.mkdir()
    (bench.state / "leases.json").write_bytes(content)
    with agent_on(bench) as connection:
        connection.hold_limit(bench.uuids, 200)
    assert "lease file corrupt" in bench.log.read_text()
    assert (bench.state / "leases.json.corrupt-0").read_bytes() == content
    assert bench.limits == [400, 400, 400]


def test_a_state_folder_that_cannot_be_used_gives_out_no_lease(bench: Bench) -> None:
    bench.state.write_text("in the way")
    with agent_on(bench) as connection:
        assert refusal(connection, bench).reason == "StateNotDurable"
        assert len(connection.energy()) == 3, "energy is told all the same"
        bench.state.unlink()
        connection.hold_limit(bench.uuids, 200)


def test_without_a_driver_the_agent_waits_for_one(bench: Bench) -> None:
    state = bench.gpus.path
    elsewhere = bench.folder / "elsewhere"
    state.rename(elsewhere)
    with agent_on(bench) as connection:
        with pytest.raises(AgentRefused) as caught:
            connection.gpus()
        assert caught.value.reason == "NoDriver"
        assert refusal(connection, bench).reason == "NoDriver"
        elsewhere.rename(state)
        assert [gpu.uuid for gpu in connection.gpus()] == bench.uuids
        connection.hold_limit(bench.uuids, 200)
        assert bench.limits == [200, 200, 200]
    assert bench.limits == [400, 400, 400]


def test_without_the_right_the_setter_says_so(bench: Bench) -> None:
    with agent_on(bench) as connection:
        ticket = bench.gpus.inject_fault("nvmlDeviceSetPowerManagementLimit", code=4)
        refused = refusal(connection, bench)
        assert refused.reason == "NotPermitted"
        assert "CAP_SYS_ADMIN" in refused.message
        bench.gpus.clear_fault(ticket)
        connection.hold_limit(bench.uuids, 200)


def test_a_restore_that_fails_is_tried_again_until_it_works(bench: Bench) -> None:
    with agent_on(bench) as connection:
        connection.hold_limit(bench.uuids, 200)
        ticket = bench.gpus.inject_fault("nvmlDeviceSetPowerManagementLimit", code=999, gpu=bench.uuids[0])
        with pytest.raises(AgentRefused, match="the agent keeps trying") as caught:
            connection.release()
        assert caught.value.reason == "NotRestored"
        assert bench.limits == [200, 400, 400]
        bench.gpus.clear_fault(ticket)
        assert connection.release() in ([], bench.uuids[:1])
        assert bench.limits == [400, 400, 400]


NVML_CODES = (1, 2, 3, 4, 6, 7, 9, 12, 13, 15, 16, 18, 20, 23, 28, 999)


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceSetPowerManagementLimit",
        "nvmlDeviceGetPowerManagementLimit",
        "nvmlDeviceGetPowerManagementLimitConstraints",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetUUID",
        "nvmlInit_v2",
    ],
)
def test_whatever_nvml_answers_at_any_call_the_agent_says_it_and_lives(bench: Bench, function: str) -> None:
    reasons = set()
    with agent_on(bench) as connection:
        for code in NVML_CODES:
            ticket = bench.gpus.inject_fault(function, code=code)
            for ask in (connection.gpus, connection.energy, lambda: connection.hold_limit(bench.uuids, 200)):
                try:
                    ask()
                except AgentRefused as refused:
                    reasons.add(refused.reason)
            bench.gpus.clear_fault(ticket)
            connection.release()
            assert bench.limits == [400, 400, 400], f"after code {code}"
        connection.hold_limit(bench.uuids, 200)
    foreseen = "DeviceFailed OutOfRange NotSupported NotPermitted UnknownGpu NoDriver GpuLost NotRestored"
    assert reasons <= set(foreseen.split())
    assert bench.limits == [400, 400, 400]


def test_a_driver_that_hangs_stops_neither_the_socket_nor_the_restoring(bench: Bench) -> None:
    process = start_agent(bench.socket, bench.state, environment=bench.environment, log=bench.log)
    with AgentConnection(bench.socket) as connection:
        connection.hold_limit(bench.uuids[:1], 300)
        ticket = bench.gpus.inject_fault("nvmlDeviceSetPowerManagementLimit", delay_seconds=60, count=1)
        with pytest.raises(AgentRefused) as caught:
            connection.hold_limit(bench.uuids, 200)
        assert caught.value.reason == "Unavailable"
        bench.gpus.clear_fault(ticket)
        assert connection.release() == bench.uuids[:1]
        assert bench.limits == [400, 400, 400]
    assert end_agent(process) == 0


def test_what_another_actor_sets_is_left_alone(bench: Bench) -> None:
    with agent_on(bench) as connection:
        connection.hold_limit(bench.uuids, 200)
        bench.gpus.set_power_limit_as_another_actor(0, 250.0)
        connection.release()
        assert bench.limits == [250, 400, 400]
    assert "another actor has set it" in bench.log.read_text()


def test_a_read_only_folder_is_refused_before_anything_is_changed(bench: Bench) -> None:
    bench.state.mkdir()
    # Root writes to a folder without write permission; only a read-only mount holds it off.
    mount = f"mount --bind {bench.state} {bench.state} && mount -o remount,ro,bind {bench.state}"
    if subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets us make no read-only mount")
    agent = (
        f"{sys.executable} -m wattloop_agent --socket {bench.socket} --state-directory {bench.state} "
        f"--ready-descriptor 1 2>>{bench.log}"
    )
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f"{mount} && exec {agent}"], env=bench.environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", bench.log.read_text()
        with AgentConnection(bench.socket) as connection:
            assert refusal(connection, bench).reason == "StateNotDurable"
        assert end_agent(process) == 0
