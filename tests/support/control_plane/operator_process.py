"""`wattloop operator` as a process that tests start, kill and restart on the same addresses."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from support.control_plane.memory_cgroup import MemoryCgroup
from support.control_plane.preloaded import PreloadedOperator
from support.control_plane.processes import ServerProcess
from support.control_plane.waiting import LONGEST_WAIT_SECONDS

WATTLOOP = Path(sys.executable).parent / "wattloop"


class OperatorProcess(ServerProcess):
    """One operator.

    Args:
        database: Its database; None: that of the environment.
        lease: Namespace and name of the Lease; one of the operators of a name leads.
        report_port: Port of the reporting API; 0: any free port.
        preloaded: Whether it is forked from a process that has imported its modules, and not started as a program.
        cgroup: The cgroup that it runs in, started as a program, so that all of its memory counts; None: that of
            the tests.
    """

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        database: str | None,
        lease: tuple[str, str],
        *,
        name: str = "operator",
        report_port: int = 0,
        options: tuple[str, ...] = (),
        preloaded: bool = True,
        cgroup: MemoryCgroup | None = None,
    ) -> None:
        command = [
            str(WATTLOOP),
            "operator",
            f"--kubeconfig={kubeconfig}",
            *([] if database is None else [f"--database={database}"]),
            f"--report-bind=127.0.0.1:{report_port}",
            "--health-bind=127.0.0.1:0",
            "--metrics-bind=127.0.0.1:0",
            f"--leader-election-namespace={lease[0]}",
            f"--leader-election-name={lease[1]}",
            "--leader-lease-seconds=12",
            "--log-format=json",
            *options,
        ]
        self._preloaded = preloaded and cgroup is None
        super().__init__(name, command if cgroup is None else cgroup.command(command), folder)

    def _started(self) -> subprocess.Popen[bytes] | PreloadedOperator:
        self._log_start = self.log.stat().st_size
        return PreloadedOperator(list(map(str, self.command[1:])), self.log) if self._preloaded else super()._started()

    def stop(self, *, timeout_seconds: float = 60.0) -> None:
        """Terminate it and wait for it; a busy machine gives it longer than other servers, for its exit code counts."""
        super().stop(timeout_seconds=timeout_seconds)

    def lines(self) -> list[dict[str, Any]]:
        """Its log lines since its start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            text = log.read().decode("utf-8", "replace")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def await_line(self, message: str, timeout_seconds: float = LONGEST_WAIT_SECONDS) -> dict[str, Any]:
        """Wait for a line of its log."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            self.check_alive()
            found = next((line for line in self.lines() if message in line["message"]), None)
            if found is not None:
                return found
            time.sleep(0.05)
        raise AssertionError(f"timed out waiting for {message!r} in the log of {self.name}:\n{self.log_tail()}")

    def url_of(self, part: str) -> str:
        """The URL of a part: health, metrics or reporting API."""
        line = self.await_line(f"{part}: serving ")
        return str(line["message"].partition("serving ")[2])

    def health(self, path: str) -> httpx.Response:
        """Request /healthz or /readyz."""
        return httpx.get(f"{self.url_of('health')}{path}", timeout=60.0)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def suspend(self) -> None:
        """Send SIGSTOP: it is suspended until `resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def await_exit(self, timeout_seconds: float = LONGEST_WAIT_SECONDS) -> int:
        """Wait until it ends by itself; returns its exit code."""
        return self._process.wait(timeout_seconds)
