"""What trainings are told of the energy of a GPU that others use, too, beside the GPU's own counter.

``python3 benchmarks/shared_gpu.py [--work 400]`` runs on the first GPU (a) one training alone, (b) two at once, and
(c) one that starts again within its attempt while another one uses the GPU in between. It changes no setting. The
trainings copy memory on the GPU by CUDA's driver interface (``--work`` GB, 3 to 4 TB/s), or work on a simulated GPU. It
needs nvidia-ml-py and python-json-logger beside Wattloop's own source, and no other package.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wattloop.energy_monitor import EnergyMonitor
from wattloop.gpus.agent import SOCKET_VARIABLE
from wattloop.gpus.agent_process import running_agent
from wattloop.gpus.gpu_processes import others_among
from wattloop.gpus.nvml import Session, lists_all_processes
from wattloop.run.training_run import Run

SIMULATED_STATE = "WATTLOOP_SIMULATED_GPUS_STATE"
GIGABYTE = 10**9
BUFFER_BYTES = 4 * 10**9
COPIES_AT_ONCE = 50


def work(gigabytes: float) -> None:
    """Copy so much on the GPU, or work on the simulated one for about as long."""
    if state := os.environ.get(SIMULATED_STATE):
        from nvml_simulator import Machine  # noqa: PLC0415 - a real GPU needs no simulator

        with Machine(state) as machine:
            machine.occupy(0, gigabytes / 10, 0.8)
        return
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: Any) -> None:
        if code := getattr(cuda, name)(*arguments):
            raise SystemExit(f"{name}: CUDA error {code}")

    device, context = ctypes.c_int(), ctypes.c_void_p()
    source, target = ctypes.c_uint64(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    for buffer in (source, target):
        call("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(BUFFER_BYTES))
    for number in range(max(round(gigabytes * GIGABYTE / BUFFER_BYTES), 1)):
        call("cuMemcpyDtoDAsync_v2", target, source, ctypes.c_size_t(BUFFER_BYTES), None)
        if number % COPIES_AT_ONCE == 0:
            call("cuCtxSynchronize")
    call("cuCtxSynchronize")


def train(gigabytes: float) -> None:
    """One training, which prints what it was told as JSON."""
    monitor = EnergyMonitor(gpus=[0])
    with Run(environment=os.environ, gpus=[0]) as run, monitor.window("training") as window:
        work(gigabytes)
        time.sleep(1.1)
        told = [asdict(each) for each in run.gpus.energy()]
    measured = window.measurement
    with Session() as nvml:
        pids = nvml.gpus()[0].compute_processes()
        others, unknown = others_among(pids, os.getpid(), is_complete=lists_all_processes())
    found = {"pid": os.getpid(), "run": told, "listed_pids": pids, "others_at_end": others, "unknown": unknown}
    window_found = {
        "joules": round(measured.total_energy_joules, 1),
        "deviation": round(measured.uncertainty_joules, 1),
        "seconds": round(measured.time_seconds, 2),
        "shared": measured.shared,
    }
    print(json.dumps({**found, "window": window_found}), flush=True)


def start(gigabytes: float) -> subprocess.Popen[str]:
    """Start a training of its own process."""
    command = [sys.executable, __file__, "--train", str(gigabytes)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def told(training: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a training, and return what it was told."""
    output, _ = training.communicate()
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def joules(found: dict[str, Any]) -> float:
    """What a training's run was told."""
    return sum(each["energy_millijoules"] - each["start_energy_millijoules"] for each in found["run"]) / 1e3


def counted(session: Session) -> float:
    """The GPU's counter."""
    return session.gpus()[0].energy_millijoules() / 1e3


def show(name: str, trainings: list[dict[str, Any]], used: float, seconds: float) -> None:
    """Print one scenario."""
    print(f"\n{name}: the GPU's counter rose by {used:.0f} J in {seconds:.1f} s")
    for each in trainings:
        print(f"  run {joules(each):.0f} J, shared {[gpu['shared'] for gpu in each['run']]}; window {each['window']}")
        print(f"    pid {each['pid']}, listed {each['listed_pids']}, others {each['others_at_end']} {each['unknown']}")


def scenarios(gigabytes: float) -> None:
    """Run the three scenarios, each beside the GPU's counter."""
    with Session() as session:
        print("GPU", session.gpus()[0].name, "PID namespace", Path("/proc/self/ns/pid").readlink(), flush=True)
        print("the driver lists all processes of the machine:", lists_all_processes())
        begin, at = counted(session), time.monotonic()
        alone = told(start(gigabytes))
        show("(a) alone", [alone], counted(session) - begin, time.monotonic() - at)
        begin, at = counted(session), time.monotonic()
        both = [told(each) for each in [start(gigabytes), start(gigabytes)]]
        show("(b) two at once", both, counted(session) - begin, time.monotonic() - at)
        begin, at = counted(session), time.monotonic()
        parts = [told(start(gigabytes)) for _ in range(3)]
        show("(c) starts again, the second one of another", parts, counted(session) - begin, time.monotonic() - at)
        first, other, again = parts
        last = again["run"][0]["energy_millijoules"] - first["run"][0]["start_energy_millijoules"]
        print(
            f"  the attempt (processes 1 and 3): {joules(first) + joules(again):.0f} J by its processes; "
            f"{last / 1e3:.0f} J from first to last reading; the other used {joules(other):.0f} J"
        )


def main() -> None:
    """Run the scenarios, or one training of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=float, default=40_000.0, help="GB that each training copies")
    parser.add_argument("--train", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train is not None:
        train(options.train)
        return
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "agent.sock"
        with running_agent(socket, Path(folder) / "state", log=Path(folder) / "agent.log"):
            os.environ[SOCKET_VARIABLE] = str(socket)
            scenarios(options.work)


if __name__ == "__main__":
    main()
