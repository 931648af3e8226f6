"""A wall clock that jumps by a day during a hold, the ledger and a push."""

import ast
import contextlib
import urllib.request
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.agents.processes import children_of, raw_answer
from support.agents.pushed import OperatorStandIn, push_settings, running_operator
from support.agents.scraping import scraped
from support.agents.wall_clock import LIBRARIES, WallClock
from support.control_plane.certificates import CertificateAuthority
from support.free_ports import free_port
from support.test_sets.parameters import exhaustive_after
from wattloop.gpus.agent import AgentConnection

SOURCES = Path(__file__).parents[2]
# Numbers that are to rise over restarts: of events, and of the reports of a process that is started again.
GOES_BY_THE_WALL_CLOCK = {
    # Whether a container's log, whose file has the time of the wall clock, is of this boot. After a jump forward it
    # looks older, and the holders of the node's GPUs are not known for longer.
    "agent/wattloop_agent/monitor/pods/pod_authenticator.py": {"time.time"},
    "agent/wattloop_agent/telemetry/serving.py": {"time.time"},
    # The column start_time of the log, as in Zeus.
    "client/wattloop/compat/zeus_windows.py": {"time.time"},
}
WALL_CLOCKS = {
    "time": {"time", "time_ns", "localtime", "gmtime", "ctime", "strftime", "asctime", "CLOCK_REALTIME", "CLOCK_TAI"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
MINUTE = 60.0
DAY_SECONDS = 86400.0
process_test = pytest.mark.processes
needs_faketime = pytest.mark.skipif(not LIBRARIES, reason="libfaketime is missing: apt-get install libfaketime")


def wall_clocks_read(source: Path) -> set[str]:
    """The functions of the standard library by which a module asks what day it is."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    read = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=name):
                if name in WALL_CLOCKS.get(owner, ()):
                    read.add(f"{owner}.{name}")
            case ast.ImportFrom(module="time", names=names):
                read.update(f"time.{each.name}" for each in names if each.name in WALL_CLOCKS["time"])
    return read


def test_agent_and_client_measure_nothing_by_the_wall_clock() -> None:
    modules = [*SOURCES.glob("agent/wattloop_agent/**/*.py"), *SOURCES.glob("client/wattloop/**/*.py")]
    assert len(modules) > 100
    found = {str(module.relative_to(SOURCES)): read for module in modules if (read := wall_clocks_read(module))}
    assert found == GOES_BY_THE_WALL_CLOCK


class Node:
    """An agent that pushes, on simulated GPUs, by a wall clock that can be set."""

    def __init__(self, agent_fixture: AgentFixture, operator: OperatorStandIn, authority: bytes = b"") -> None:
        self.agent_fixture = agent_fixture
        self.operator = operator
        self.began = [gpu.counter_millijoules for gpu in agent_fixture.gpus.describe().gpus]
        self.clock = WallClock(agent_fixture.folder)
        self.metrics = f"127.0.0.1:{free_port()}"
        # Simulated time jumps: between two readings of the counter power would tell nothing of it.
        readings = {"metrics_bind": self.metrics, "sample_interval": 0.05, "counter_interval": 0}
        reports = push_settings(agent_fixture.folder, operator, authority)
        self.environment = agent_fixture.environment_with(**readings, **reports) | self.clock.environment()

    @contextlib.contextmanager
    def agent(self) -> Iterator[AgentConnection]:
        with (
            self.agent_fixture.running(self.environment) as process,
            AgentConnection(self.agent_fixture.socket) as connection,
        ):
            for pid in (process.pid, *children_of(process.pid)):
                assert "libfaketime" in Path(f"/proc/{pid}/maps").read_text(), "both parts go by that clock"
            yield connection

    def jump(self, days: int) -> None:
        """Set the wall clock, and see that the agent goes by it."""
        before = self.day()
        self.clock.jump(days)
        until(lambda: abs(abs(self.day() - before) - DAY_SECONDS) < DAY_SECONDS / 2, "the agent's clock has jumped")

    def day(self) -> float:
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=60) as answer:
            return parsedate_to_datetime(answer.headers["Date"]).timestamp()

    def hold_for(self, seconds: float, uuid: str) -> None:
        request = f'{{"verb": "hold_limit", "gpus": ["{uuid}"], "watts": 200, "for_seconds": {seconds:g}}}\n'
        assert "result" in raw_answer(self.agent_fixture.socket, request.encode())

    def accounted(self) -> dict[str, float]:
        count = scraped(self.metrics)["wattloop_gpu_energy_accounted_joules"]
        return {labels["UUID"]: joules for labels, joules in count}

    def used(self) -> dict[str, float]:
        """Since the ledger began: time stood still until then."""
        counters = [gpu.counter_millijoules for gpu in self.agent_fixture.gpus.describe().gpus]
        return {
            uuid: (counter - begin) / 1000
            for uuid, counter, begin in zip(self.agent_fixture.uuids, counters, self.began, strict=True)
        }

    def all_is_accounted(self) -> bool:
        return self.accounted() == pytest.approx(self.used(), abs=0.001)

    def failures(self) -> float:
        ((_, failures),) = scraped(self.metrics)["wattloop_agent_push_failures"]
        return failures


@process_test
@needs_faketime
@pytest.mark.parametrize("days", exhaustive_after([1, -1]))
def test_a_jump_by_a_day_ends_no_hold_loses_no_energy_and_stops_no_push(agent_fixture: AgentFixture, days: int) -> None:
    with running_operator() as operator:
        node = Node(agent_fixture, operator)
        with node.agent() as connection:
            until(lambda: set(node.accounted()) == set(agent_fixture.uuids), "the ledger has begun", MINUTE)
            connection.hold_limit(agent_fixture.uuids[:1], 200)
            node.hold_for(3600, agent_fixture.uuids[1])
            node.hold_for(5, agent_fixture.uuids[2])
            node.jump(days)
            count = len(operator.reports)
            until(lambda: agent_fixture.limits == [200, 200, 400], "five seconds are over, and an hour is not", MINUTE)
            agent_fixture.gpus.occupy([0, 1, 2], work=312.0, intensity=0.8)
            until(node.all_is_accounted, "the ledger goes on", MINUTE)
            until(lambda: len(operator.reports) > count + 3, "so do the pushes", MINUTE)
            resets = scraped(node.metrics)["wattloop_gpu_energy_counter_resets"]
            assert [count for _, count in resets] == [0, 0, 0]
            assert agent_fixture.limits == [200, 200, 400]
        agent_fixture.gpus.occupy([0, 1, 2], work=312.0, intensity=0.8)
        node.clock.jump(0)
        with node.agent():
            until(node.all_is_accounted, "what was used while no agent ran, on another day", MINUTE)
    assert agent_fixture.limits == [400, 400, 400]


@process_test
@needs_faketime
@pytest.mark.parametrize(
    ("days", "because"), exhaustive_after([(1, "certificate has expired"), (-1, "certificate is not yet valid")])
)
def test_energy_is_kept_while_the_operators_certificate_is_not_valid(
    agent_fixture: AgentFixture, days: int, because: str
) -> None:
    # It is valid for a day from now on.
    authority = CertificateAuthority()
    pair = authority.server(["127.0.0.1"], ["operator"])
    with running_operator(tls=pair.serving_context(agent_fixture.folder)) as operator:
        node = Node(agent_fixture, operator, authority.certificate)
        with node.agent():
            until(lambda: len(operator.reports) > 0, "the operator receives a report", MINUTE)
            node.jump(days)
            until(lambda: because in agent_fixture.log.read_text(), "the agent does not trust it, and says why", MINUTE)
            failures = node.failures()
            until(lambda: node.failures() > failures, "and still does not", MINUTE)
            agent_fixture.gpus.occupy([0, 1, 2], work=312.0, intensity=0.8)
            used = {uuid: joules * 1000 for uuid, joules in node.used().items()}
            node.clock.jump(0)

            def last_report() -> dict[str, float]:
                return {gpu["uuid"]: gpu["energy_millijoules"] for gpu in operator.reports[-1]["gpus"]}

            until(lambda: last_report() == pytest.approx(used, abs=1), "all of it is reported", MINUTE)
