"""Starts the node agent as a process of one's own: for the local mode, for tests, for a notebook."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from wattloop import interruption
from wattloop.agent import AgentUnavailable
from wattloop.agent_supervisor import AgentSupervisor

# A change of all GPUs and a power controller that hangs fit into it; see the agent's own times.
END_SECONDS = 10.0


def start_agent(
    socket: Path,
    state_directory: Path,
    *,
    nvml_library: Path | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    on_start: Callable[[int], None] = lambda _: None,
) -> subprocess.Popen[bytes]:
    """Start an agent that lives as long as this process at most; it serves its socket when this returns.

    Whatever kills this process, the agent gives every GPU back and ends; whatever kills the agent, its power
    controller gives
    every GPU back. It is in a session of its own: Ctrl-C reaches it only through `stop_agent`, after the last energy
    reading.

    Args:
        socket: Where it shall serve; at most 107 bytes long, as the kernel has it.
        state_directory: Where it keeps its leases.
        nvml_library: The ``libnvidia-ml.so.1`` to load in place of the system's.
        environment: Its environment; default: this process's.
        log: A file that its log is appended to; default: this process's stderr.
        on_start: Called with its process id before it serves.

    Raises:
        AgentUnavailable: It cannot be started, its log cannot be written, it ended before it served (its log says why),
            or the ``agent`` extra is not installed.
        wattloop.interruption.Interrupted: This program was asked to end meanwhile; the agent has ended.
    """
    reading, writing = os.pipe()
    command = [
        sys.executable,
        "-m",
        "wattloop_agent",
        "--socket",
        str(socket),
        "--state-directory",
        str(state_directory),
        "--watch-parent",
        str(os.getpid()),
        "--ready-descriptor",
        str(writing),
    ]
    if nvml_library is not None:
        command += ["--nvml-library", str(nvml_library)]
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, reading)
        try:
            with contextlib.ExitStack() as child:
                child.callback(os.close, writing)
                stderr = None if log is None else child.enter_context(log.open("ab"))
                process = subprocess.Popen(  # noqa: S603 - our own module
                    command,
                    env=None if environment is None else dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    pass_fds=[writing],
                    start_new_session=True,
                )
        except OSError as error:
            raise AgentUnavailable(f"the agent for {socket} cannot be started: {error}") from error
        on_start(process.pid)
        if interruption.call_cancellable(lambda: os.read(reading, 16), lambda: stop_agent(process)):
            return process
    code = process.wait()
    told = f"its log is {log}" if log is not None else "its log is above"
    raise AgentUnavailable(f"the agent for {socket} ended with {code} before it served; {told}")


def stop_agent(process: subprocess.Popen[bytes]) -> int:
    """Have an agent give every GPU back and end; returns 0 where it has done so, else its exit code."""
    process.terminate()
    try:
        code = process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    return 0 if code == interruption.EXIT_INTERRUPTED else code


@contextlib.contextmanager
def running_agent(
    socket: Path,
    state_directory: Path,
    *,
    nvml_library: Path | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    on_start: Callable[[int], None] = lambda _: None,
) -> Iterator[None]:
    """An agent for the time of a block, started again whenever it dies: what the kubelet does on a node.

    One that dies soon after each start is started ever later, every half minute at last. Connections find the next one
    by themselves, and hold with it what they held.

    Raises:
        AgentUnavailable: As `start_agent`, for the first.
    """

    def start() -> subprocess.Popen[bytes]:
        return start_agent(
            socket, state_directory, nvml_library=nvml_library, environment=environment, log=log, on_start=on_start
        )

    supervisor = AgentSupervisor(start, stop_agent)
    thread = threading.Thread(target=supervisor.keep, name="wattloop-agent-supervisor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        supervisor.end()
        thread.join()
