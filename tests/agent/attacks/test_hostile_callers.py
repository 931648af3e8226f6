"""The bounds on a hostile caller and on each part, as docs/internals/security.md claims them."""

import json
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS, AgentFixture, until
from support.agents.processes import children_of
from wattloop.gpus.agent import AgentConnection, AgentRequestError, AgentUnavailable
from wattloop_agent.monitor.connection_slots import MAX_CONNECTIONS_PER_GPU_OWNER

NETWORK_CODE = {"asyncio", "http", "ssl", "urllib.request", "h2", "prometheus_client", "kubernetes", "yaml"}


def connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(DEADLINE_SECONDS)
    connection.connect(str(path))
    return connection


def answer_to(connection: socket.socket, request: bytes) -> dict[str, dict[str, str]]:
    connection.sendall(request)
    with connection.makefile("rb") as stream:
        answer: dict[str, dict[str, str]] = json.loads(stream.readline())
        return answer


def open_files(pid: int) -> list[str]:
    files = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        # The ledger, say, is written and closed meanwhile.
        with suppress(FileNotFoundError):
            files.append(str(link.readlink()))
    return files


def test_the_power_controller_imports_no_network_code() -> None:
    script = "import sys, wattloop_agent.power_controller_main\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & NETWORK_CODE == set()


def test_the_power_controller_has_no_socket_except_the_monitors(agent_fixture: AgentFixture) -> None:
    with agent_fixture.running() as agent:
        (power_controller,) = children_of(agent.pid)
        names = [name for name in open_files(power_controller) if name.startswith("socket:")]
        sockets = {name.removeprefix("socket:[").rstrip("]") for name in names}
        unix = {line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
        assert sockets <= unix, "sockets of another kind"
        assert len(sockets) <= 4, "two of the monitor, and the pair that signals wake"


def test_the_monitor_never_asks_nvml_to_change_anything(agent_fixture: AgentFixture) -> None:
    nowhere = agent_fixture.folder / "no-power-controller.sock"
    with (
        agent_fixture.running(part="monitor", power_controller_socket=nowhere),
        AgentConnection(agent_fixture.socket) as connection,
    ):
        assert len(connection.energy()) == 3
        next(connection.subscribe(0.05))
        for change in (
            connection.release,
            lambda: connection.hold_limit(agent_fixture.uuids, 200),
            lambda: connection.hold_clocks(agent_fixture.uuids, 900),
        ):
            with pytest.raises(AgentRequestError) as caught:
                change()
            assert caught.value.reason == "Unavailable"
    changing = [name for name in agent_fixture.gpus.functions() if "Set" in name or "Reset" in name]
    assert len(changing) > 5
    assert set(agent_fixture.gpus.describe().calls) & set(changing) == set()


def test_one_owner_cannot_take_all_connections(agent_fixture: AgentFixture) -> None:
    # An agent of its own: the tests of this file are one owner, and the agent notices closed connections later.
    with agent_fixture.running(), ExitStack() as stack:
        path = agent_fixture.socket
        connections = [stack.enter_context(connected(path)) for _ in range(MAX_CONNECTIONS_PER_GPU_OWNER)]
        for connection in connections:
            assert "result" in answer_to(connection, b'{"verb": "energy"}\n')
        one_more = stack.enter_context(connected(path))
        with one_more.makefile("rb") as stream:
            assert json.loads(stream.readline())["error"]["reason"] == "TooMany"
        script = "from wattloop.gpus.agent import AgentConnection as C; print(len(C(sys.argv[1]).energy()))"
        command = [sys.executable, "-W", "ignore", "-c", f"import sys; {script}", str(path)]
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert other.stdout == "3\n", "another owner is served all the same"


def test_a_caller_that_never_reads_is_disconnected_and_delays_no_other(agent: AgentFixture) -> None:
    with connected(agent.socket) as silent, AgentConnection(agent.socket) as other:
        silent.setblocking(False)
        request = b'{"verb": "gpus"}\n' * 1000
        sent = 0
        while sent < 3_000_000:
            try:
                sent += silent.send(request)
            except BlockingIOError:
                break
        assert other.energy()


def test_thousands_of_connections_leave_no_file_open(agent_fixture: AgentFixture) -> None:
    with agent_fixture.running() as agent:
        with AgentConnection(agent_fixture.socket) as connection:
            connection.hold_limit(agent_fixture.uuids, 200)
            connection.release()
        (power_controller,) = children_of(agent.pid)
        before = {pid: len(open_files(pid)) for pid in (agent.pid, power_controller)}
        for number in range(500):
            with connected(agent_fixture.socket) as caller:
                if number % 3:
                    answer_to(caller, b'{"verb": "list"}\n' if number % 2 else b"nonsense\n")
        until(lambda: all(len(open_files(pid)) <= count for pid, count in before.items()), "every file is closed again")
        threads = {pid: len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in before}
        assert threads[power_controller] <= 2, "its own, and the watchdog"
        assert threads[agent.pid] <= 6, "its own, the signals', the driver's, the owners', and two for what blocks"


def test_another_user_on_a_laptop_cannot_open_the_socket(agent: AgentFixture) -> None:
    assert agent.socket.stat().st_mode & 0o777 == 0o600
    assert agent.state.stat().st_mode & 0o777 == 0o700
    with AgentConnection(agent.socket) as connection:
        connection.hold_limit(agent.uuids, 200)
        assert (agent.state / "leases.json").stat().st_mode & 0o777 == 0o600
        connection.release()


def test_a_forked_child_is_not_the_process_that_connected(agent: AgentFixture) -> None:
    script = (
        "import os, sys, time\n"
        "from wattloop.gpus.agent import AgentConnection, AgentRequestError\n"
        "connection = AgentConnection(sys.argv[1])\n"
        "connection.gpus()\n"
        "parent = os.getpid()\n"
        "if os.fork():\n"
        "    os._exit(0)\n"
        # Its files are closed before it has ended, so a closed pipe would say so too early.
        "while os.getppid() == parent: time.sleep(0.001)\n"
        "try:\n"
        "    connection.gpus()\n"
        "except AgentRequestError as refused:\n"
        "    print(refused.reason, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(agent.socket)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "NotPermitted\n", done.stderr


def test_an_answer_without_an_end_is_cut_off_by_the_client(folder: Path) -> None:
    script = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print('up', flush=True)\n"
        "c, _ = s.accept(); c.recv(100)\n"
        "try:\n"
        "    while True: c.sendall(b'x' * 65536)\n"
        "except OSError: pass\n"
    )
    path = folder / "endless.sock"
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        with pytest.raises(AgentUnavailable, match="an answer of more than"):
            AgentConnection(path).gpus()
