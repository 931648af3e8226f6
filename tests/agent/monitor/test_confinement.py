"""The limits of a compromised monitor: the kernel's real filters, in processes of their own."""

import json
import logging
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from support.agents.agent_fixture import AgentFixture
from support.agents.processes import children_of
from support.free_ports import free_port
from wattloop.gpus.agent import AgentConnection
from wattloop_agent.monitor import confinement
from wattloop_agent.monitor.confinement import confine, deny_reads_below

HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}
# Each acts on the process `victim`, which is of the same user; the last line of each raises OSError where refused.
REACHES = {
    "a look whether it is there": "os.kill(victim, 0)",
    "SIGKILL": "os.kill(victim, signal.SIGKILL)",
    "SIGKILL by pidfd": "signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGKILL)",
    "SIGKILL to all": "os.kill(-1, 0)",
    "a signal to a thread": "call('tgkill', victim, victim, 0)",
    "a signal to a thread of a number": "call('tkill', victim, 0)",
    "a signal by the owner of a descriptor": "fcntl.fcntl(sockets[0], fcntl.F_SETOWN, victim)",
    "a signal by the owner of a socket": "fcntl.ioctl(sockets[0], 0x8901, struct.pack('i', victim))",
    "a trace": "call('ptrace', 0x4206, victim, 0, 0)",
    "its limits": "resource.prlimit(victim, resource.RLIMIT_CPU, (1, 1))",
    "its priority": "os.setpriority(os.PRIO_PROCESS, victim, 19)",
    "its processors": "os.sched_setaffinity(victim, os.sched_getaffinity(victim))",
    "its memory": "call('process_vm_readv', victim, 0, 0, 0, 0, 0)",
    "its descriptors": "call('pidfd_getfd', os.pidfd_open(victim), 0, 0)",
}
SCRIPT = """
import ctypes, fcntl, os, resource, signal, socket, struct, subprocess, sys
from wattloop_agent.monitor import confinement
victim = int(sys.argv[1])
sockets = socket.socketpair()
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    number = confinement._ARCHITECTURES[os.uname().machine].calls[name]
    if libc.syscall(*map(ctypes.c_long, (number, *arguments))) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
"""


def statuses_of_threads(pid: int) -> list[str]:
    statuses = []
    for path in Path(f"/proc/{pid}/task").glob("*/status"):
        # A thread may end meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            statuses.append(path.read_text())
    return statuses


supported = pytest.mark.skipif(platform.machine() not in HEADERS, reason="no table for this architecture")


@pytest.fixture
def victim() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def output_of(script: str, *arguments: object) -> str:
    command = [sys.executable, "-c", SCRIPT + script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def tried(reaches: Mapping[str, str]) -> str:
    """A script that tries each of these, and says of each what came of it, as JSON."""
    return f"""
import json
found = {{}}
for name, reach in {dict(reaches)!r}.items():
    try:
        exec(reach)
        found[name] = "reached"
    except PermissionError as error:
        found[name] = error.errno
print(json.dumps(found))
"""


@supported
def test_a_confined_process_reaches_no_other(victim: int) -> None:
    harmless = {
        name: reach.replace("signal.SIGKILL", "signal.SIGCONT")
        for name, reach in REACHES.items()
        if name != "SIGKILL to all"
    }
    without_filter = json.loads(output_of(tried(harmless), victim))
    assert without_filter == dict.fromkeys(harmless, "reached"), "it is possible, so that the test can fail"
    confined = json.loads(output_of("confinement.deny_other_processes()" + tried(REACHES), victim))
    assert confined == dict.fromkeys(REACHES, 1)
    assert Path(f"/proc/{victim}").exists()


@supported
def test_a_confined_processs_children_and_threads_are_confined_too(victim: int) -> None:
    script = f"""
import threading
confinement.deny_other_processes()
kill = "import os, sys; os.kill(int(sys.argv[1]), 9)"
print(subprocess.run([sys.executable, "-S", "-c", kill, "{victim}"], stderr=subprocess.DEVNULL).returncode)
def run():
    try:
        os.kill(victim, 9)
    except PermissionError:
        print("refused")
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""
    assert output_of(script, victim).split() == ["1", "refused"]


@supported
def test_a_confined_process_can_still_act_on_itself(victim: int) -> None:
    script = """
confinement.deny_other_processes()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
os.sched_setaffinity(0, os.sched_getaffinity(0))
sockets[0].setblocking(False)
os.set_inheritable(sockets[0].fileno(), True)
os.close(os.pidfd_open(victim))
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= 200)
"""
    assert output_of(script, victim) == "True"


@pytest.mark.parametrize("machine", HEADERS)
def test_the_system_call_numbers_are_the_kernels(machine: str) -> None:
    header = Path(HEADERS[machine])
    if not header.exists():
        pytest.skip(f"{header} is not here")
    found = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()))
    table = confinement._ARCHITECTURES[machine].calls
    assert {name: int(found[name]) for name in table if name in found} == {
        name: number for name, number in table.items() if name in found
    }
    assert {"kill", "fcntl", "ioctl", "prlimit64", "ptrace"} <= found.keys()
    named = {*confinement._REFUSED, *confinement._SELF_ONLY, *confinement._REFUSED_COMMANDS}
    assert named == table.keys()


def has_landlock() -> bool:
    tried = subprocess.run(
        [sys.executable, "-c", f"from {deny_reads_below.__module__} import *; deny_reads_below(Path('/var/log'))"],
        capture_output=True,
        check=False,
    )
    return tried.returncode == 0


def test_a_confined_process_lists_pods_logs_and_reads_none(tmp_path: Path, victim: int) -> None:
    if not has_landlock():
        pytest.skip("this kernel has no Landlock")
    logs = tmp_path / "log" / "pods"
    (logs / "default_trainer_0").mkdir(parents=True)
    (logs / "default_trainer_0" / "0.log").write_text("secret")
    (tmp_path / "log" / "beside").write_text("beside")
    (tmp_path / "log" / "link").symlink_to(logs)
    script = f"""
from pathlib import Path
from wattloop_agent.monitor.confinement import deny_reads_below
logs = Path("{logs}")
assert Path(f"/proc/{{victim}}/environ").read_bytes()
# As in the monitor's container, where every capability is dropped.
assert libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24)) == 0
deny_reads_below(logs)
print([path.name for path in logs.iterdir()])
for path in (logs / "default_trainer_0" / "0.log", logs.parent / "link" / "default_trainer_0" / "0.log",
             Path(f"/proc/{{victim}}/environ"), Path(f"/proc/{{victim}}/mem")):
    try:
        path.read_text()
        print("read", path)
    except PermissionError:
        print("refused")
print((logs.parent / "beside").read_text())
assert Path(f"/proc/{{victim}}/stat").read_bytes() and Path(f"/proc/{{victim}}/cgroup").read_bytes()
aside = logs.parent.parent / "aside"
aside.write_text("written")
"""
    lines = output_of(script, victim).splitlines()
    assert lines == ["['default_trainer_0']", *["refused"] * 4, "beside"]


@supported
def test_a_monitor_with_a_power_controller_elsewhere_confines_itself_and_serves(agent_fixture: AgentFixture) -> None:
    (agent_fixture.folder / "logs").mkdir()
    environment = agent_fixture.environment | {
        "WATTLOOP_AGENT_PART": "monitor",
        "WATTLOOP_AGENT_POWER_CONTROLLER_SOCKET": str(agent_fixture.folder / "power-controller.sock"),
        "WATTLOOP_AGENT_METRICS_BIND": f"127.0.0.1:{free_port()}",
    }
    with agent_fixture.running(environment) as process:
        threads = statuses_of_threads(process.pid)
        assert len(threads) > 1
        assert all(re.search(r"^Seccomp:\t2$", each, re.MULTILINE) for each in threads)
        assert all(re.search(r"^NoNewPrivs:\t1$", each, re.MULTILINE) for each in threads)
        with AgentConnection(agent_fixture.socket) as connection:
            assert len(connection.energy()) == 3
    assert "the monitor is confined" in agent_fixture.log.read_text()


def test_a_monitor_that_starts_its_power_controller_can_end_it(agent_fixture: AgentFixture) -> None:
    with agent_fixture.running() as process:
        assert re.search(r"^Seccomp:\t0$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
        assert len(children_of(process.pid)) == 1


def test_a_kernel_that_refuses_the_confinement_is_logged_and_the_monitor_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with caplog.at_level(logging.INFO):
        confine(None)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "no table of system calls for riscv64" in record.__dict__["error"]
