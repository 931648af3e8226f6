"""Hostile processes beside a victim, which keeps its limit and is answered; their cost is bounded."""

import fcntl
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS, HEARTBEAT_TIMEOUT_SECONDS, AgentFixture, until
from support.agents.processes import children_of
from wattloop.gpus.agent import AgentConnection, AgentUnavailable
from wattloop_agent.agent_logs import MAX_LINES
from wattloop_agent.monitor import caller_connection
from wattloop_agent.monitor.caller_connection import CHANGES_PER_SECOND, MAX_BURST
from wattloop_agent.monitor.connection_slots import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_GPU_OWNER,
    MAX_SUBSCRIPTIONS,
    MAX_SUBSCRIPTIONS_PER_OWNER,
    WANTED_DESCRIPTORS,
)
from wattloop_agent.monitor_main import MAX_STALL_TIMEOUTS

pytestmark = pytest.mark.processes

PROGRAM = Path(__file__).parents[2] / "support" / "agents" / "hostile_client.py"
SET_CLOCKS = "nvmlDeviceSetGpuLockedClocks"
ATTACK_SECONDS = 4.5
# When a latecomer connects, as a share of the attack.
LATECOMER_SHARE = 0.3
VICTIMS_WATTS = 150.0
# Longer than a pause of a process on a busy machine, and shorter than what is left of an attack when the latecomer
# comes: so long waits who is locked out.
MAX_ANSWER_SECONDS = 2.5
MAX_LINE_BYTES = 400
# Log lines about no caller, and those of the second part.
SPARE_LINES = 60
MAX_GROWTH_BYTES = 48 * 1024 * 1024
USUAL_SOFT_LIMIT = 1024


@dataclass
class Outcome:
    """The outcome of an attack.

    Attributes:
        attackers: The result of each hostile process.
        victim: The result of the victim.
        latecomer_seconds: How long an owner that came during the attack waited for its first answer.
        limits: All limits observed on the victim's GPU.
        log_bytes: The size of both parts' logs.
        growth_bytes: The growth of both parts' memory.
        descriptors: The largest number of descriptors that the monitor had open.
        allowed_seconds: The time that an answer may take on a machine as busy as this one.
    """

    attackers: list[dict[str, Any]]
    victim: dict[str, Any]
    latecomer_seconds: float
    limits: set[float]
    log_bytes: int
    growth_bytes: int
    descriptors: int
    seconds: float
    allowed_seconds: float

    def errors(self) -> Counter[str]:
        """The refusals that the attackers read, by reason."""
        return sum((Counter(each["errors"]) for each in self.attackers), Counter[str]())

    def total(self, name: str) -> int:
        """The sum over the attackers."""
        return sum(int(each[name]) for each in self.attackers)


@contextmanager
def hostile(agent_fixture: AgentFixture, attack: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A hostile process or the victim; it ends when its standard input closes."""
    command = [sys.executable, str(PROGRAM), str(agent_fixture.socket), attack, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


@contextmanager
def agent_at_the_usual_limit(
    agent_fixture: AgentFixture, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """An agent started with the usual soft limit of descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, USUAL_SOFT_LIMIT), hard))
    with ExitStack() as stack:
        try:
            agent = stack.enter_context(agent_fixture.running(environment))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        yield agent


def attacked(
    agent_fixture: AgentFixture, attack: str, processes: int, connections: int, seconds: float = ATTACK_SECONDS
) -> Outcome:
    """Run hostile processes with this many connections each, beside a victim on the first GPU."""
    return attacked_by(agent_fixture, [(attack, connections, 1)] * processes, seconds)


def attacked_by(
    agent_fixture: AgentFixture, attacks: Sequence[tuple[str, int, int]], seconds: float = ATTACK_SECONDS
) -> Outcome:
    """Run a hostile process for each attack, with so many connections and a GPU, beside a victim on the first GPU."""
    # A heartbeat that an attack delays costs the victim its limit.
    agent_fixture.heartbeat_timeout_seconds = HEARTBEAT_TIMEOUT_SECONDS
    begin = time.monotonic()
    with agent_at_the_usual_limit(agent_fixture, agent_fixture.environment) as agent, ExitStack() as stack:
        allowed_seconds = max(MAX_ANSWER_SECONDS, time.monotonic() - begin)
        pids = [agent.pid, *children_of(agent.pid)]
        victim = stack.enter_context(hostile(agent_fixture, "victim", "--gpus", agent_fixture.uuids[0]))
        assert victim.stdout.readline() == "held\n"
        before, logged = sum(map(resident_bytes, pids)), agent_fixture.log.stat().st_size
        begin = time.monotonic()
        attackers = []
        for attack, connections, gpu in attacks:
            arguments = ["--connections", str(connections), "--seconds", str(seconds), "--gpus"]
            process = hostile(agent_fixture, attack, *arguments, agent_fixture.uuids[gpu])
            attackers.append(stack.enter_context(process))
        limits, descriptors, latecomer_seconds = set(), 0, 0.0
        while any(attacker.poll() is None for attacker in attackers):
            limits.add(agent_fixture.limits[0])
            descriptors = max(descriptors, len(list(Path(f"/proc/{agent.pid}/fd").iterdir())))
            if not latecomer_seconds and time.monotonic() - begin > LATECOMER_SHARE * seconds:
                latecomer_seconds = waited_for_first_answer(agent_fixture)
            time.sleep(0.02)
        growth = sum(map(resident_bytes, pids)) - before
        outcomes = [json.loads(attacker.communicate()[0]) for attacker in attackers]
        answer, _ = victim.communicate()
        return Outcome(
            outcomes,
            json.loads(answer),
            latecomer_seconds,
            limits,
            agent_fixture.log.stat().st_size - logged,
            growth,
            descriptors,
            time.monotonic() - begin,
            allowed_seconds,
        )


def waited_for_first_answer(agent_fixture: AgentFixture) -> float:
    begin = time.monotonic()
    with AgentConnection(agent_fixture.socket, timeout_seconds=ATTACK_SECONDS) as latecomer:
        assert len(latecomer.energy()) == 3
    return time.monotonic() - begin


def check(outcome: Outcome) -> None:
    """The bounds under every attack."""
    assert outcome.limits == {VICTIMS_WATTS}, "the victim keeps its limit throughout"
    assert outcome.victim["unheld"] == 0
    assert outcome.victim["failed"] == 0
    assert outcome.victim["asked"] > 10
    assert outcome.victim["longest_seconds"] < outcome.allowed_seconds
    assert outcome.latecomer_seconds < outcome.allowed_seconds, "a latecomer is served, too"
    # Each part has a log.
    assert outcome.log_bytes < 2 * ((MAX_LINES + 1) * (outcome.seconds + 1) + SPARE_LINES) * MAX_LINE_BYTES
    assert outcome.growth_bytes < MAX_GROWTH_BYTES
    assert outcome.descriptors < WANTED_DESCRIPTORS


def test_a_few_attackers_of_each_kind_at_once_stop_no_heartbeat_and_delay_no_caller(
    agent_fixture: AgentFixture,
) -> None:
    before = agent_fixture.gpus.describe().calls.get(SET_CLOCKS, 0)
    kinds = {"newlines": 16, "valid": 16, "idle": 40, "half": 40, "subscribers": 32, "churn": 1, "clocks": 8}
    outcome = attacked_by(
        agent_fixture, [(kind, connections, 2 if kind == "clocks" else 1) for kind, connections in kinds.items()]
    )
    check(outcome)
    of_kind = dict(zip(kinds, outcome.attackers, strict=True))
    errors = {kind: of_kind[kind]["errors"] for kind in kinds}
    assert errors["newlines"]["BadRequest"] > 0, "they are answered"
    assert errors["newlines"]["ConnectionClosed"] > 0, "and the connection is closed after a few"
    assert of_kind["valid"]["answers"] > 0
    assert all(errors[kind]["TooMany"] > 0 for kind in ("idle", "half", "subscribers")), "each process has a bound"
    assert of_kind["churn"]["opened"] > 0
    changes = agent_fixture.gpus.describe().calls[SET_CLOCKS] - before
    assert 0 < changes < CHANGES_PER_SECOND * outcome.seconds + MAX_BURST
    assert errors["clocks"]["OutOfRange"] > 0
    assert of_kind["clocks"]["answers"] == sum(errors["clocks"].values()), "only refusals are answered"


@pytest.mark.exhaustive
def test_endless_newlines_stop_no_heartbeat(agent_fixture: AgentFixture) -> None:
    outcome = attacked(agent_fixture, "newlines", processes=1, connections=63)
    check(outcome)
    assert outcome.errors()["BadRequest"] > 100, "they are answered"
    assert outcome.errors()["ConnectionClosed"] > 10, "and the connection is closed after a few"


@pytest.mark.exhaustive
def test_a_flood_of_valid_requests_delays_no_other_caller(agent_fixture: AgentFixture) -> None:
    outcome = attacked(agent_fixture, "valid", processes=2, connections=64)
    check(outcome)
    assert outcome.total("answers") > 100
    assert set(outcome.errors()) <= {"TooMany", "NotYours", "ConnectionClosed"}


@pytest.mark.exhaustive
def test_a_flood_of_unanswered_requests_delays_no_other_caller_and_changes_clocks_at_a_bounded_rate(
    agent_fixture: AgentFixture,
) -> None:
    before = agent_fixture.gpus.describe().calls.get(SET_CLOCKS, 0)
    outcome = attacked(agent_fixture, "clocks", processes=2, connections=32)
    check(outcome)
    changes = agent_fixture.gpus.describe().calls[SET_CLOCKS] - before
    assert 0 < changes < len(outcome.attackers) * (CHANGES_PER_SECOND * outcome.seconds + MAX_BURST)
    assert outcome.total("answers") == outcome.errors().total(), "only refusals are answered"
    assert outcome.errors()["OutOfRange"] > 0
    assert set(outcome.errors()) <= {"OutOfRange", "TooMany", "NotYours", "ConnectionClosed"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("attack", ["idle", "half"])
def test_idle_connections_and_incomplete_requests_lock_no_caller_out(agent_fixture: AgentFixture, attack: str) -> None:
    outcome = attacked(agent_fixture, attack, processes=18, connections=40)
    check(outcome)
    assert outcome.errors()["TooMany"] > 0, "each process has a bound"
    if attack == "idle":
        assert outcome.errors()["ConnectionClosed"] > 0, "idle ones make room"
    assert outcome.total("open_at_end") <= MAX_CONNECTIONS + len(outcome.attackers) * MAX_CONNECTIONS_PER_GPU_OWNER


@pytest.mark.exhaustive
def test_subscribers_are_bounded_and_cost_others_nothing(agent_fixture: AgentFixture) -> None:
    outcome = attacked(agent_fixture, "subscribers", processes=10, connections=32)
    check(outcome)
    assert outcome.errors()["TooMany"] > 10 * (32 - MAX_SUBSCRIPTIONS_PER_OWNER)
    per_second = MAX_SUBSCRIPTIONS / 0.02
    assert outcome.total("answers") - outcome.errors().total() < per_second * (outcome.seconds + 1)


def test_callers_that_read_no_answer_cost_others_nothing_and_are_disconnected(agent_fixture: AgentFixture) -> None:
    outcome = attacked(
        agent_fixture, "deaf_until_closed", processes=2, connections=3, seconds=caller_connection.MAX_ANSWER_SECONDS + 2
    )
    check(outcome)
    assert outcome.total("closed_by_agent") > 0


@pytest.mark.exhaustive
def test_opening_and_closing_connections_costs_others_nothing(agent_fixture: AgentFixture) -> None:
    outcome = attacked(agent_fixture, "churn", processes=2, connections=1)
    check(outcome)
    assert outcome.total("opened") > 100


def test_a_hostile_process_leaves_nothing_behind(agent_fixture: AgentFixture) -> None:
    with agent_at_the_usual_limit(agent_fixture, agent_fixture.environment) as agent, ExitStack() as stack:
        with AgentConnection(agent_fixture.socket) as first:
            first.energy()
        folder = Path(f"/proc/{agent.pid}/fd")
        before = len(list(folder.iterdir()))
        attacks = ("idle", "half", "newlines", "deaf")
        for attacker in [stack.enter_context(hostile(agent_fixture, attack, "--seconds", "1")) for attack in attacks]:
            attacker.communicate()
        until(lambda: len(list(folder.iterdir())) <= before, "every descriptor is closed again")


def test_a_hung_event_loop_loses_no_limit_before_its_process_ends_itself(agent_fixture: AgentFixture) -> None:
    timeout_seconds = 1.5
    reading, writing = os.pipe()
    # The log's pipe is full, so the event loop hangs at its next line.
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    agent = [sys.executable, "-m", "wattloop_agent", "--socket", str(agent_fixture.socket)]
    command = [*agent, "--state-directory", str(agent_fixture.state), "--heartbeat-timeout", str(timeout_seconds)]
    with (
        subprocess.Popen(command, env=agent_fixture.environment, stderr=writing) as process,
        open(reading, "rb") as log,  # noqa: PTH123 - a descriptor
        ExitStack() as stack,
    ):
        os.close(writing)
        stack.callback(process.kill)
        until(agent_fixture.socket.is_socket, "the agent serves")
        trainer = stack.enter_context(AgentConnection(agent_fixture.socket))
        until(lambda: len(trainer.hold_limit(agent_fixture.uuids, 200)) == 3, "the limit is held")
        stack.enter_context(hostile(agent_fixture, "newlines", "--seconds", str(DEADLINE_SECONDS)))
        impatient = AgentConnection(agent_fixture.socket, timeout_seconds=1.0, reconnect_seconds=0.0)
        begin = time.monotonic()

        def hangs() -> bool:
            nonlocal begin
            asked = time.monotonic()
            if not answers(impatient):
                return True
            # It works at least until it is asked for the last answer that it gives.
            begin = asked
            return False

        until(hangs, "the event loop hangs")
        detected = time.monotonic()
        while time.monotonic() < begin + (MAX_STALL_TIMEOUTS - 2) * timeout_seconds:
            assert agent_fixture.limits == [200, 200, 200], "no owner loses a limit"
            time.sleep(0.02)
        # The trace waits for the pipe.
        until(lambda: time.monotonic() > detected + (MAX_STALL_TIMEOUTS + 3) * timeout_seconds, "it is taken to hang")
        assert b"most recent call first" in log.read(), "it says where it hung"
        assert process.wait(DEADLINE_SECONDS) == 1
    # Its power controller had the same log, so it has either restored every GPU or ended with its leases on disk.
    with agent_fixture.running(), AgentConnection(agent_fixture.socket) as next_connection:
        next_connection.release()
        assert agent_fixture.limits == [400, 400, 400]


def answers(connection: AgentConnection) -> bool:
    try:
        return bool(connection.leases())
    except AgentUnavailable:
        return False
