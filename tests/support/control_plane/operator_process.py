"""`wattloop operator` as a process of its own: started, killed, started again on the same addresses."""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from support.control_plane.processes import ServerProcess

WATTLOOP = Path(sys.executable).parent / "wattloop"


class OperatorProcess(ServerProcess):
    """One operator.

    Args:
        kubeconfig: Whose rights it has.
        folder: Where its log is.
        database: Its database; None: what the environment says.
        lease: Namespace and name of the Lease; operators of one name take turns.
        report_port: Where it takes in reports; 0: any free port.
        options: Further options.
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
        super().__init__(name, command, folder)
        self._began_at = self.log.stat().st_size

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged since it was started."""
        with self.log.open("rb") as log:
            log.seek(self._began_at)
            text = log.read().decode("utf-8", "replace")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def await_line(self, message: str, timeout_seconds: float = 120.0) -> dict[str, Any]:
        """Waits for a line of its log.

        Raises:
            AssertionError: It did not come.
        """
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            self.check_alive()
            found = next((line for line in self.lines() if message in line["message"]), None)
            if found is not None:
                return found
            time.sleep(0.05)
        raise AssertionError(f"waited in vain for {message!r} in the log of {self.name}:\n{self.log_tail()}")

    def url_of(self, part: str) -> str:
        """Where a part of it serves: health, metrics or reporting API."""
        line = self.await_line(f"{part}: serving ")
        return str(line["message"].partition("serving ")[2])

    def health(self, path: str) -> httpx.Response:
        """/healthz or /readyz."""
        return httpx.get(f"{self.url_of('health')}{path}", timeout=60.0)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def freeze(self) -> None:
        """SIGSTOP: it does nothing until `thaw`, and does not know it."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def await_exit(self, timeout_seconds: float = 120.0) -> int:
        """Waits until it ends by itself; returns its exit code."""
        return self._process.wait(timeout_seconds)

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()


def free_port() -> int:
    """A port of 127.0.0.1 that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
