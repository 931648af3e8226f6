"""A matrix of killed processes, signals and moments: every GPU is restored or held for a living owner.

Like a kubelet, the test restarts an agent whose process has ended.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from support.agents.agent_fixture import HEARTBEAT_TIMEOUT_SECONDS, AgentFixture, until
from support.agents.processes import children_of
from wattloop.errors import WattloopError
from wattloop.gpus.agent import AgentConnection
from wattloop.gpus.agent_process import stop_agent

pytestmark = pytest.mark.processes

FOUND = [400.0, 400.0, 400.0]
SET = "nvmlDeviceSetPowerManagementLimit"
SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "hang": signal.SIGSTOP}
TRAINER = """
import sys
from wattloop.gpus.agent import AgentConnection
from wattloop.errors import WattloopError
connection = AgentConnection(sys.argv[1], reconnect_seconds=0)
print("ready", flush=True)
for line in sys.stdin:
    try:
        connection.hold_limit(sys.argv[2:], 200) if line == "hold\\n" else connection.release()
    except WattloopError as error:
        print(error, flush=True)
    else:
        print("done", flush=True)
"""


class Cell:
    """A trainer, a monitor and a power controller, and a kill of some of them."""

    def __init__(self, agent_fixture: AgentFixture) -> None:
        self.agent_fixture = agent_fixture
        begin = time.monotonic()
        self.agent = self.start_agent()
        # Ten seconds on a machine that starts an agent in half a second; on a slower one, the time of as many starts.
        self.law_seconds = max(10.0, 20 * (time.monotonic() - begin))
        (self.power_controller,) = children_of(self.agent.pid)
        self.trainer = subprocess.Popen(
            [sys.executable, "-c", TRAINER, str(agent_fixture.socket), *agent_fixture.uuids],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.read_line()

    def start_agent(self) -> subprocess.Popen[bytes]:
        return self.agent_fixture.start()

    def send(self, command: str) -> None:
        self.trainer.stdin.write(f"{command}\n")
        self.trainer.stdin.flush()

    def read_line(self) -> str:
        return self.trainer.stdout.readline()

    def kill(self, target: str, number: int) -> None:
        pids = {
            "trainer": [self.trainer.pid],
            "monitor": [self.agent.pid],
            "power-controller": [self.power_controller],
            "both": [self.power_controller, self.agent.pid],
        }[target]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def reach(self, when: str, target: str, number: int) -> None:
        """Run to that moment, and kill."""
        if when == "before a hold":
            self.kill(target, number)
            return
        if when == "during a hold":
            self.kill_in_the_driver("hold", target, number)
            return
        self.send("hold")
        assert self.read_line() == "done\n"
        if when == "after a hold":
            self.kill(target, number)
        else:
            self.kill_in_the_driver("release", target, number)

    def kill_in_the_driver(self, command: str, target: str, number: int) -> None:
        calls = self.agent_fixture.gpus.describe().calls.get(SET, 0)
        ticket = self.agent_fixture.gpus.inject_fault(SET, delay_seconds=60, first_call=2, count=1)
        self.send(command)
        until(lambda: self.agent_fixture.gpus.describe().calls.get(SET, 0) >= calls + 2, "the second GPU is being set")
        self.kill(target, number)
        self.agent_fixture.gpus.clear_fault(ticket)

    def keep(self) -> None:
        """Restart ended processes, as a kubelet does."""
        if self.agent.poll() is not None:
            self.agent = self.start_agent()

    def is_lawful(self) -> bool:
        self.keep()
        lives = self.trainer.poll() is None
        return all(limit == 400 or (limit == 200 and lives) for limit in self.agent_fixture.limits)

    def await_restoration(self) -> None:
        """Wait until the invariant holds, then end all processes and wait for the restoration."""
        until(self.is_lawful, "as found, or held for an owner that lives", self.law_seconds)
        for pid in (self.trainer.pid, self.agent.pid, self.power_controller):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.trainer.kill()
        self.trainer.communicate()
        until(self.is_as_found, "as found once the trainer is gone", self.law_seconds)

    def is_as_found(self) -> bool:
        self.keep()
        return self.agent_fixture.limits == FOUND

    def has_no_lease(self) -> bool:
        self.keep()
        with AgentConnection(self.agent_fixture.socket, reconnect_seconds=0) as connection, suppress(WattloopError):
            return connection.leases() == []
        return False


MOMENTS = ("during a hold", "after a hold", "during a restore")
CELLS = [
    (target, how, when)
    for target in ("trainer", "monitor", "power-controller", "both")
    for how in SIGNALS
    for when in MOMENTS
    # The kernel ends a trainer at SIGTERM as at SIGKILL.
    if (target, how) != ("trainer", "terminate")
] + [(target, "kill", "before a hold") for target in ("monitor", "power-controller", "both")]
# Each moment, and each process; test_killed.py has kills after a hold.
USUAL_CELLS = {
    ("monitor", "kill", "before a hold"),
    ("trainer", "kill", "during a hold"),
    ("power-controller", "kill", "during a hold"),
    ("both", "kill", "during a restore"),
    ("monitor", "hang", "during a restore"),
}


@pytest.mark.parametrize(
    ("target", "how", "when"),
    [pytest.param(*cell, marks=[] if cell in USUAL_CELLS else pytest.mark.exhaustive) for cell in CELLS],
)
def test_every_gpu_is_restored_or_held_for_a_living_owner(
    agent_fixture: AgentFixture, target: str, how: str, when: str
) -> None:
    if how == "hang":
        agent_fixture.heartbeat_timeout_seconds = HEARTBEAT_TIMEOUT_SECONDS
    cell = Cell(agent_fixture)
    cell.reach(when, target, SIGNALS[how])
    cell.await_restoration()
    until(cell.has_no_lease, "no lease is orphaned")
    with AgentConnection(agent_fixture.socket) as connection:
        counters = [gpu.counter_millijoules for gpu in agent_fixture.gpus.describe().gpus]
        assert [reading.energy_millijoules for reading in connection.energy()] == counters
    assert stop_agent(cell.agent) == 0
