"""An agent replaced by another version while leases are held: continued, or restored, never left."""

import hashlib
import json
from typing import Any

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.test_sets.parameters import exhaustive_after
from wattloop.gpus.agent import AgentConnection, AgentUnavailable
from wattloop.gpus.agent_process import stop_agent
from wattloop_agent.durable_file import boot_id

pytestmark = pytest.mark.processes


def left_behind(agent_fixture: AgentFixture, changed: dict[str, Any], version: int = 1) -> None:
    """The GPUs and the lease file of an agent that was killed while an owner, gone since, held 200 W.

    Args:
        agent_fixture: The GPUs and the state folder.
        changed: Fields that the lease of the first GPU has in another way than this version's; with None, not at all.
    """
    leases = []
    for number, uuid in enumerate(agent_fixture.uuids):
        lease: dict[str, Any] = {"gpu": uuid, "setting": "power_limit", "found": 350.0, "held": 200.0, "pending": None}
        lease |= {"owner": "process:1:1", "boot_id": boot_id(), "expires_seconds": None, "releasing": False}
        if number == 0:
            lease |= changed
        leases.append({name: value for name, value in lease.items() if value is not None})
        agent_fixture.gpus.set_power_limit_as_another_actor(number, 200.0)
    digest = hashlib.sha256(json.dumps(leases, sort_keys=True).encode()).hexdigest()
    content = {"format": version, "sha256": digest, "leases": leases, "written_by": "0.9"}
    agent_fixture.state.mkdir()
    (agent_fixture.state / "leases.json").write_text(json.dumps(content))


def restart_on(agent_fixture: AgentFixture, limits: list[float]) -> str:
    """Run an agent until it has restored these limits; returns its log."""
    with agent_fixture.running(), AgentConnection(agent_fixture.socket) as connection:
        until(lambda: agent_fixture.limits == limits, f"restored: {agent_fixture.log.read_text()}")
        until(lambda: connection.leases() == [], "no lease is left")
        assert connection.hold_limit(agent_fixture.uuids, 150)[1].found_watts == 350
    assert agent_fixture.limits == limits
    return agent_fixture.log.read_text()


@pytest.mark.parametrize("version", exhaustive_after([2, 1]))
def test_a_lease_file_with_unknown_fields_or_a_later_format_is_restored(
    agent_fixture: AgentFixture, version: int
) -> None:
    left_behind(agent_fixture, {"priority": "high", "expires_seconds": None}, version)
    restart_on(agent_fixture, [350, 350, 350])


def test_a_limit_whose_lease_does_not_say_what_was_found_returns_to_the_vendors_default(
    agent_fixture: AgentFixture,
) -> None:
    left_behind(agent_fixture, {"found": None})
    restart_on(agent_fixture, [400, 350, 350])


def test_a_lease_on_a_setting_of_a_later_version_is_named_and_the_others_are_restored(
    agent_fixture: AgentFixture,
) -> None:
    left_behind(agent_fixture, {"setting": "fan_speed", "found": 30.0, "held": 90.0})
    log = restart_on(agent_fixture, [200, 350, 350])
    (line,) = (line for line in log.splitlines() if "fan_speed" in line)
    assert agent_fixture.uuids[0] in line
    assert "30" in line


def test_an_agent_that_starts_before_the_old_one_has_ended_changes_nothing_and_its_restart_continues(
    agent_fixture: AgentFixture,
) -> None:
    old = agent_fixture.start()
    with AgentConnection(agent_fixture.socket) as holder:
        holder.hold_limit(agent_fixture.uuids, 200)
        holder.hold_clocks(agent_fixture.uuids, 900)
        before = holder.energy(agent_fixture.uuids)

        with pytest.raises(AgentUnavailable):
            agent_fixture.start()
        assert "an agent serves it" in agent_fixture.log.read_text()
        assert agent_fixture.limits == [200, 200, 200]
        assert holder.interruptions == 0, "the old one's socket stays"

        assert stop_agent(old) == 0
        assert agent_fixture.limits == [400, 400, 400], "restored while no agent runs"
        assert clocks(agent_fixture) == [None, None, None]
        with agent_fixture.running():
            # The holder need not notice: the connection holds again what it held.
            leases = holder.leases()
            assert {(lease.setting, lease.found, lease.held) for lease in leases if lease.yours} == {
                ("power_limit", 400.0, 200.0),
                ("graphics_clock", None, 900.0),
            }
            assert agent_fixture.limits == [200, 200, 200]
            assert clocks(agent_fixture) == [(900, 900)] * 3
            assert holder.interruptions == 1
            # The counters are the GPUs' own; on their virtual clock nothing was used meanwhile.
            after = holder.energy(agent_fixture.uuids)
            assert [each.energy_millijoules for each in after] == [each.energy_millijoules for each in before]
    assert agent_fixture.limits == [400, 400, 400]
    assert clocks(agent_fixture) == [None, None, None]


def clocks(agent_fixture: AgentFixture) -> list[tuple[int, int] | None]:
    """The locked graphics clocks of all GPUs."""
    return [gpu.locked_graphics_clocks_megahertz for gpu in agent_fixture.gpus.describe().gpus]
