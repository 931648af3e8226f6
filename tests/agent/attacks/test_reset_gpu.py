"""A GPU that is reset, or falls off the bus, while limits are held, beside the GPUs of a victim.

The victim's limits and its readings are the same before and during; the ledger has each joule once.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.agents.scraping import MeteredAgent, metered_agent
from support.test_sets.parameters import exhaustive_after
from wattloop.gpus.agent import AgentConnection, AgentRequestError

pytestmark = pytest.mark.processes

GPU_IS_LOST, RESET_REQUIRED = 15, 16
HOSTILE, VICTIMS = 1, (0, 2)
WORK_OF_A_SECOND = 312.0


@pytest.fixture
def agent(agent_fixture: AgentFixture) -> Iterator[MeteredAgent]:
    with metered_agent(agent_fixture, counter_interval=0) as agent:
        until(lambda: len(agent.scraped("wattloop_gpu_energy_accounted_joules")) == 3, "the ledger has begun")
        yield agent


def longest_answer(connection: AgentConnection, uuids: list[str]) -> float:
    """Seconds of the slowest of 20 readings of the victim."""
    longest = 0.0
    for _ in range(20):
        began = time.monotonic()
        assert [reading.uuid for reading in connection.energy(uuids)] == uuids
        longest = max(longest, time.monotonic() - began)
    return longest


def reset_by_hand(agent_fixture: AgentFixture) -> None:
    """As ``nvidia-smi --gpu-reset``: the counter is zero, and the limit the default."""
    agent_fixture.gpus.reset_energy_counter(HOSTILE)
    agent_fixture.gpus.set_power_limit_as_another_actor(HOSTILE, 400.0)


def off_the_bus_and_reset(code: int) -> Callable[[AgentFixture], None]:
    def fall(agent_fixture: AgentFixture) -> None:
        fault = agent_fixture.gpus.inject_fault("*", code=code, gpu=HOSTILE)
        reset_by_hand(agent_fixture)
        calls = agent_fixture.gpus.describe().calls["nvmlDeviceGetTotalEnergyConsumption"]
        until(
            lambda: agent_fixture.gpus.describe().calls["nvmlDeviceGetTotalEnergyConsumption"] > calls + 6,
            "it was read while it was lost",
        )
        agent_fixture.gpus.clear_fault(fault)

    return fall


@pytest.mark.parametrize(
    "trouble",
    exhaustive_after([off_the_bus_and_reset(GPU_IS_LOST), reset_by_hand, off_the_bus_and_reset(RESET_REQUIRED)]),
)
def test_a_gpu_that_is_reset_loses_its_limit_alone_and_no_joule_of_any_gpu(
    agent_fixture: AgentFixture, agent: MeteredAgent, trouble: Callable[[AgentFixture], None]
) -> None:
    connection, uuids = agent.connection, agent_fixture.uuids
    victims, hostile = [uuids[index] for index in VICTIMS], uuids[HOSTILE]
    began = {gpu.uuid: gpu.counter_millijoules for gpu in agent_fixture.gpus.describe().gpus}
    accounted_before = agent.by_uuid("wattloop_gpu_energy_accounted_joules")

    def used() -> dict[str, float]:
        gpus = agent_fixture.gpus.describe().gpus
        return {gpu.uuid: (gpu.counter_millijoules - began[gpu.uuid]) / 1000 for gpu in gpus}

    def accounted() -> dict[str, float]:
        now = agent.by_uuid("wattloop_gpu_energy_accounted_joules")
        return {uuid: now[uuid] - accounted_before[uuid] for uuid in uuids}

    connection.hold_limit(uuids, 200)
    agent_fixture.gpus.occupy([0, 1, 2], work=20 * WORK_OF_A_SECOND, intensity=0.8)
    until(lambda: accounted() == pytest.approx(used(), abs=0.01), "all is accounted")
    before = used()
    latency_before = longest_answer(connection, victims)

    trouble(agent_fixture)
    began[hostile] = 0
    latency_during = longest_answer(connection, victims)
    overridden = {victims[0]: 0, hostile: 1, victims[1]: 0}
    until(lambda: agent.by_uuid("wattloop_gpu_power_limit_overridden") == overridden, "the agent says so")
    until(lambda: agent.by_uuid("wattloop_gpu_energy_counter_resets")[hostile] == 1, "the agent says why")
    assert agent_fixture.limits == [200.0, 400.0, 200.0]
    agent_fixture.gpus.occupy([0, 1, 2], work=20 * WORK_OF_A_SECOND, intensity=0.8)
    expected = used() | {hostile: before[hostile] + used()[hostile]}
    uncertainty = agent.by_uuid("wattloop_gpu_energy_uncertainty_joules")
    print(f"victims: {latency_before * 1000:.1f} ms before, {latency_during * 1000:.1f} ms during; {uncertainty=}")
    until(lambda: all(accounted()[uuid] == pytest.approx(expected[uuid], abs=0.01) for uuid in victims), "the victims'")
    until(lambda: abs(accounted()[hostile] - expected[hostile]) <= uncertainty[hostile] + 0.01, "and its own")
    assert agent.by_uuid("wattloop_gpu_power_limit_overridden") == overridden

    assert [held.held_watts for held in connection.hold_limit([hostile], 200)] == [200]
    assert agent_fixture.limits == [200.0, 200.0, 200.0]
    connection.release()
    assert agent_fixture.limits == [400.0, 400.0, 400.0]


def test_a_gpu_that_stays_off_the_bus_leaves_the_others_their_limits(
    agent_fixture: AgentFixture, agent: MeteredAgent
) -> None:
    connection, uuids = agent.connection, agent_fixture.uuids
    connection.hold_limit(uuids, 200)
    agent_fixture.gpus.inject_fault("*", code=GPU_IS_LOST, gpu=HOSTILE)
    until(lambda: agent.by_uuid("wattloop_gpu_readable")[uuids[HOSTILE]] == 0, "the agent says so")
    with pytest.raises(AgentRequestError, match=f"{uuids[HOSTILE]}.*is lost"):
        connection.hold_limit(uuids, 250)
    # All or none: a request that names the lost GPU changes no other.
    assert agent_fixture.limits == [200.0, 200.0, 200.0]
    assert [held.held_watts for held in connection.hold_limit([uuids[0]], 250)] == [250]
    assert agent_fixture.limits == [250.0, 200.0, 200.0]
