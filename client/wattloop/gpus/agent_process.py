"""Runs the node agent as a child process, for the local mode, for tests and for notebooks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from wattloop import interruption
from wattloop.gpus.agent import AgentUnavailable
from wattloop.gpus.agent_supervisor import AgentSupervisor
from wattloop.threads import WatchedThread

# Enough for a change of all GPUs and for a power controller that hangs; see the agent's own timeouts.
STOP_SECONDS = 10.0


def start_agent(
    socket: Path,
    state_directory: Path,
    *,
    nvml_library: Path | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    on_start: Callable[[int], None] = lambda _: None,
) -> subprocess.Popen[bytes]:
    """Start an agent that ends with this process at the latest, and return once it serves its socket.

    If this process is killed, the agent restores every GPU and ends. If the agent is killed, its power
    controller restores every GPU. The agent has a session of its own, so that Ctrl-C does not end it
    before the last energy reading; `stop_agent` ends it.

    Args:
        socket: Path of the agent's socket; the kernel allows at most 107 bytes.
        state_directory: Folder of the agent's leases.
        nvml_library: The ``libnvidia-ml.so.1`` to load instead of the system's.
        environment: The agent's environment; default: this process's.
        log: A file to append the agent's log to; default: this process's stderr.
        on_start: Called with the agent's process id before the agent serves.

    Raises:
        AgentUnavailable: The agent cannot be started, its log cannot be written, it ended before it
            served (its log says why), or the ``agent`` extra is not installed.
        wattloop.interruption.Interrupted: This program was asked to end meanwhile; the agent has ended.
    """
    reading, writing = os.pipe()
    command = [
        sys.executable,
        # No file of the current folder is imported instead of a module: the parent of a clone has a folder `wattloop`.
        "-P",
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
    hint = f"its log is {log}" if log is not None else "its log is above"
    raise AgentUnavailable(f"the agent for {socket} ended with {code} before it served; {hint}")


def stop_agent(process: subprocess.Popen[bytes]) -> int:
    """Stop an agent, which restores every GPU; returns 0 on success, else the agent's exit code."""
    process.terminate()
    try:
        code = process.wait(STOP_SECONDS)
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
    """Run an agent during a block and restart it when it ends, as the kubelet does on a node.

    Restarts back off exponentially up to half a minute if the agent keeps ending soon. Connections
    reconnect to the next agent and hold the same settings there.

    Raises:
        AgentUnavailable: As in `start_agent`, for the first agent.
    """

    def start() -> subprocess.Popen[bytes]:
        return start_agent(
            socket, state_directory, nvml_library=nvml_library, environment=environment, log=log, on_start=on_start
        )

    supervisor = AgentSupervisor(start, stop_agent)
    thread = WatchedThread(supervisor.run, "wattloop-agent-supervisor", may_return=True)
    thread.start()
    try:
        yield
    finally:
        supervisor.stop()
        thread.join()
