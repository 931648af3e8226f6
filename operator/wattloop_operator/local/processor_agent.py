"""Measures trainings on a machine without a GPU: the energy of its processors by RAPL, or the time alone.

It answers on a socket like the node agent, with one device that stands for all processors, so that everything
that measures GPUs measures it in the same way. It holds no limit.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from wattloop.energy.gpu_reading import GpuReading
from wattloop.gpus.agent.answers import GpuDescription, PowerLimits, entry_of
from wattloop.gpus.rapl import POWERCAP, Rapl
from wattloop.threads import WatchedThread
from wattloop_operator.periodic_thread import PeriodicThread
from wattloop_operator.reconcile.energy.attempt_usage import PROCESSORS_PRODUCT

# The nil UUID, which no GPU has.
PROCESSORS = "GPU-00000000-0000-0000-0000-000000000000"
# Counters wrap around in minutes.
READ_SECONDS = 10.0
MAX_REQUEST_BYTES = 64 * 1024


class LocalProcessorMeter:
    """The energy of all processors and their memory.

    Args:
        folder: Folder of the RAPL zones.
    """

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._rapl = Rapl(folder)
        self._lock = threading.Lock()
        self.max_watts = max_package_watts(folder) if self.is_readable else None

    @property
    def is_readable(self) -> bool:
        """Whether there is an energy to read."""
        return any(map(_counts, self._rapl.joules()))

    def joules(self) -> float:
        """Energy since this object was created; 0 if it cannot be read."""
        with self._lock:
            self._rapl.read()
            return sum(joules for name, joules in self._rapl.joules().items() if _counts(name))

    def description(self) -> GpuDescription:
        """The processors as a device."""
        limits = None
        if self.max_watts is not None:
            limits = PowerLimits(*(self.max_watts,) * 5)
        return GpuDescription(PROCESSORS, PROCESSORS_PRODUCT, 0, limits)

    def reading(self) -> GpuReading:
        """The energy now."""
        begin = time.monotonic()
        joules = self.joules()
        seconds = time.clock_gettime(time.CLOCK_BOOTTIME)
        return GpuReading(PROCESSORS, begin, time.monotonic(), round(joules * 1e3), None, clock_seconds=seconds)


def max_package_watts(folder: Path) -> float | None:
    """Sum of the long-term power limits of the packages, which they can draw for ever; None if one is not known."""
    total = 0.0
    packages = [zone for zone in sorted(folder.glob("intel-rapl:*")) if zone.name.count(":") == 1]
    for package in packages:
        try:
            if not (package / "name").read_text().startswith("package"):
                continue
            total += int((package / "constraint_0_power_limit_uw").read_text()) / 1e6
        except (OSError, ValueError):
            return None
    return total or None


def _counts(zone: str) -> bool:
    """Whether a zone is no part of another one that counts."""
    return zone.startswith("package") and (zone.count("/") == 0 or zone.endswith("/dram"))


@contextlib.contextmanager
def running_processor_agent(path: Path, meter: LocalProcessorMeter) -> Iterator[None]:
    """Answer on a socket until the block ends.

    Args:
        path: The socket, in a folder of this user.
        meter: The processors.
    """
    with _Server(path, meter) as server, PeriodicThread(meter.joules, "processors", READ_SECONDS):
        answering = WatchedThread(server.serve_forever, "processor-agent")
        answering.start()
        try:
            yield
        finally:
            answering.release()
            server.shutdown()
            answering.join()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    # A training that runs on keeps its connection.
    block_on_close = False

    def __init__(self, path: Path, meter: LocalProcessorMeter) -> None:
        super().__init__(str(path), _Connection)
        self.meter = meter


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Answer the requests of one connection, one a line."""
        with contextlib.suppress(OSError):
            while line := self.rfile.readline(MAX_REQUEST_BYTES):
                self.wfile.write(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, object]:
        try:
            request = json.loads(line)
            verb = request["verb"]
        except (ValueError, TypeError, KeyError):
            return _error("BadRequest", "the request is no JSON object with a verb")
        match verb:
            case "gpus":
                return {"result": [asdict(self.server.meter.description())]}
            case "energy":
                return {"result": [entry_of(self.server.meter.reading())]}
            case "list" | "release":
                return {"result": []}
            case _:
                return _error("NotSupported", "this machine has no GPU; its processors keep their limits and clocks")


def _error(reason: str, message: str) -> dict[str, object]:
    return {"error": {"reason": reason, "message": message}}
