"""Every NVML call on one GPU fails for a while: the others go on, and the log stays small."""

import contextlib
import time
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.agents.node_pods import running_node
from support.agents.scraping import MeteredAgent, metered_agent
from support.test_sets.parameters import exhaustive_after
from wattloop.gpus.agent import AgentRequestError
from wattloop_agent.nvml_gpus import REOPEN_SECONDS
from wattloop_agent.power_controller.lease_manager import RESTORE_LOG_SECONDS

pytestmark = pytest.mark.processes

# GPU is lost, uninitialized, no permission, timeout, reset required, in use, unknown.
CODES = (15, 1, 4, 10, 16, 19, 999)
REQUESTS = 100
PARTS = ("monitor", "power controller")
# Of each part's opening of NVML, of the GPU that is not restored, and of the end; lines about callers
# have a rate of their own.
MAX_STORM_LINES = 8
FAILING = 1


@pytest.fixture
def agent(agent_fixture: AgentFixture) -> Iterator[MeteredAgent]:
    with metered_agent(agent_fixture) as agent:
        assert [gpu.uuid for gpu in agent.connection.gpus()] == agent_fixture.uuids
        yield agent


def storm_lines(agent_fixture: AgentFixture) -> list[str]:
    """The lines of the log that are not about a caller."""
    lines = agent_fixture.log.read_text().splitlines()
    return [line for line in lines if "owner=" not in line and "about callers suppressed" not in line]


def opened(agent_fixture: AgentFixture) -> int:
    """How often both parts have opened NVML."""
    return agent_fixture.gpus.describe().calls["nvmlInitWithFlags"]


@pytest.mark.parametrize("code", exhaustive_after(CODES))
def test_the_other_gpus_go_on_while_every_call_on_one_fails(
    agent_fixture: AgentFixture, agent: MeteredAgent, code: int
) -> None:
    connection, uuids = agent.connection, agent_fixture.uuids
    others = [uuid for index, uuid in enumerate(uuids) if index != FAILING]
    connection.hold_limit(uuids, 200)
    until(lambda: agent.readable() == dict.fromkeys(uuids, 1.0), "all are read")
    lines = len(storm_lines(agent_fixture))
    openings = opened(agent_fixture)
    begin = time.monotonic()
    agent_fixture.gpus.inject_fault("*", code=code, gpu=FAILING)

    for number in range(REQUESTS):
        gpus = connection.gpus()
        assert [gpu.uuid for gpu in gpus] == uuids
        assert [gpu.index for gpu in gpus if gpu.power_limits is None] == [FAILING]
        assert [reading.uuid for reading in connection.energy(others)] == others
        with pytest.raises(AgentRequestError, match=uuids[FAILING]):
            connection.hold_limit([uuids[FAILING]], 250)
        if number % 10 == 0:
            connection.hold_limit(others, 210 + number)
    seconds = (time.monotonic() - begin) / REOPEN_SECONDS
    assert opened(agent_fixture) - openings <= len(PARTS) * (seconds + 2), "per second"
    assert {lease.uuid for lease in connection.leases() if lease.yours} == set(uuids)
    until(lambda: agent.readable() == {**dict.fromkeys(others, 1.0), uuids[FAILING]: 0.0}, "the metrics name the one")
    with urlopen(f"http://{agent.metrics}/healthz", timeout=60) as answer:
        assert answer.status == 200, "the agent works: a restart of it would mend nothing"
    with contextlib.suppress(AgentRequestError):
        connection.release()
    assert [agent_fixture.limits[index] for index in (0, 2)] == [400, 400]

    agent_fixture.gpus.clear_faults()
    until(lambda: agent_fixture.limits == [400, 400, 400], "the one is restored as soon as it answers")
    until(lambda: agent.readable() == dict.fromkeys(uuids, 1.0), "and read again")
    written = storm_lines(agent_fixture)[lines:]
    assert len(written) <= MAX_STORM_LINES, "\n".join(written)


def test_a_gpu_that_fails_at_every_other_call_fills_no_log(agent_fixture: AgentFixture, agent: MeteredAgent) -> None:
    connection, uuids = agent.connection, agent_fixture.uuids
    connection.hold_limit(uuids, 200)
    lines = len(storm_lines(agent_fixture))
    begin = time.monotonic()
    for number in range(REQUESTS):
        ticket = agent_fixture.gpus.inject_fault("*", code=CODES[number % len(CODES)], gpu=FAILING)
        with contextlib.suppress(AgentRequestError):
            connection.release([uuids[FAILING]])
        connection.gpus()
        agent_fixture.gpus.clear_fault(ticket)
        connection.gpus()
    until(lambda: agent_fixture.limits == [200, 400, 200], "restored")
    seconds = time.monotonic() - begin
    written = storm_lines(agent_fixture)[lines:]
    retried = [line for line in written if "not restored" in line]
    assert len(retried) <= seconds / RESTORE_LOG_SECONDS + 1, "\n".join(retried)
    assert len(written) - len(retried) <= len(PARTS) * (seconds / REOPEN_SECONDS + 2), "\n".join(written)


@pytest.mark.parametrize("code", exhaustive_after(CODES))
def test_pods_with_mig_devices_are_served_while_another_gpu_fails(agent_fixture: AgentFixture, code: int) -> None:
    agent_fixture.gpus.partition(0, 2)
    part = agent_fixture.gpus.describe().gpus[0].mig_devices[0].uuid
    with running_node(agent_fixture, "v2") as cluster:
        renter = cluster.pod("renter", [part])
        assert renter.ask("gpus") == (1, None)
        agent_fixture.gpus.inject_fault("*", code=code, gpu=FAILING)
        assert renter.ask("gpus") == (1, None)
        assert renter.ask("energy", agent_fixture.uuids[:1]) == (1, None)
