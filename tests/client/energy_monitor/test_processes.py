"""Windows in whole programs: NVML in the process, fork, spawn, the end of the interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nvml_simulator
from nvml_simulator.compilation import build_library

BEGINNING = """
import json, multiprocessing, os, sys, time
import nvml_simulator
import wattloop

machine = nvml_simulator.Machine(os.environ[nvml_simulator.STATE_VARIABLE])

def joules():
    return machine.describe().gpus[0].energy_microjoules / 1e6

def measured(monitor, name):
    exact = joules()
    monitor.begin_window(name)
    machine.occupy(0, 989.0, 0.5)
    measurement = monitor.end_window(name)
    exact = joules() - exact
    # On a busy machine the sampler is late, and the process may be delayed between the readings of the exact energy.
    allowed = 0.05 * exact + 4 * measurement.uncertainty_joules
    return [abs(measurement.gpu_energy_joules[0] - exact) <= allowed < exact, measurement.reason]

if __name__ == "__main__":
    monitor = wattloop.EnergyMonitor()
    monitor.begin_window("open")
    machine.occupy(0, 1500.0, 0.5)
"""


def results_of(program: str, folder: Path, **variables: str) -> Any:
    """What a program prints, as JSON, on two simulated GPUs in real time."""
    state = nvml_simulator.create(folder / "gpus", model="H200", count=2, clock="wall", permission="anyone")
    script = folder / "program.py"
    script.write_text(BEGINNING + program)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("WATTLOOP_AGENT", "CUDA_"))},
        **nvml_simulator.environment(state),
        "WATTLOOP_NVML_LIBRARY": str(build_library()),
        **variables,
    }
    ran = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.returncode == 0
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_a_window_is_measured_with_nvml_in_the_process(tmp_path: Path) -> None:
    (found, indices) = results_of(
        """
    print(json.dumps(measured(monitor, "step")))
    print(json.dumps(monitor.gpu_indices))
""",
        tmp_path,
    )
    assert found == [True, ""]
    assert indices == [0, 1]


def test_a_forked_child_has_no_open_windows_and_measures_its_own(tmp_path: Path) -> None:
    before, child, parent = results_of(
        """
    with monitor.window("before") as window:
        machine.occupy(0, 300.0, 0.5)
    pid = os.fork()
    if pid == 0:
        try:
            monitor.end_window("open")
        except wattloop.errors.UsageError as error:
            message = str(error)
        print(json.dumps(window.measurement.total_energy_joules > 10), flush=True)
        print(json.dumps([message, *measured(monitor, "step")]), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    print(json.dumps(measured(monitor, "step")))
    monitor.end_window("open")
""",
        tmp_path,
    )
    assert before
    assert child[0].endswith("windows that were open before a fork belong to the parent process")
    assert child[1:] == [True, ""]
    assert parent == [True, ""]


def test_a_forked_child_that_measures_nothing_starts_no_thread(tmp_path: Path) -> None:
    (threads,) = results_of(
        """
    pid = os.fork()
    if pid == 0:
        import threading
        print(json.dumps(threading.active_count()), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
""",
        tmp_path,
    )
    assert threads == 1


def test_a_spawned_child_makes_its_own_monitor_and_sends_measurements(tmp_path: Path) -> None:
    (found,) = results_of(
        """
    from concurrent.futures import ProcessPoolExecutor
    import worker
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        measurement = pool.submit(worker.work).result()
    print(json.dumps([measurement.total_energy_joules > 10, measurement.reason]))
""",
        workers(tmp_path),
    )
    assert found == [True, ""]


def workers(folder: Path) -> Path:
    (folder / "worker.py").write_text(
        BEGINNING.partition("if __name__")[0]
        + """
def work():
    monitor = wattloop.EnergyMonitor()
    machine.occupy(0, 500.0, 0.5)
    with monitor.window("work") as window:
        machine.occupy(0, 500.0, 0.5)
    return window.measurement
"""
    )
    return folder


def test_only_the_gpus_that_cuda_shows_are_measured_under_its_indices(tmp_path: Path) -> None:
    ((indices, uuids, known),) = results_of(
        """
    print(json.dumps([monitor.gpu_indices, list(monitor._uuids.values()), [g.uuid for g in machine.describe().gpus]]))
""",
        tmp_path,
        CUDA_VISIBLE_DEVICES="1",
    )
    assert indices == [0]
    assert uuids == known[1:]


def test_a_window_meanwhile_another_program_uses_the_gpu_is_shared_and_that_is_said_once(tmp_path: Path) -> None:
    before, meanwhile, own, said = results_of(
        """
    import logging, subprocess
    said = []
    emit = {"emit": lambda _, each: said.append(each)}
    logging.getLogger("wattloop").addHandler(type("Said", (logging.Handler,), emit)())

    def worked(monitor):
        with monitor.window("step") as window:
            machine.occupy([0, 1], 989.0, 0.5)
        return [window.measurement.shared, list(window.measurement.shared_gpus)]

    print(json.dumps(worked(monitor)))
    work = "import os, nvml_simulator as s; s.Machine(os.environ[s.STATE_VARIABLE]).occupy(1, 5e3, 0.5)"
    child = subprocess.Popen([sys.executable, "-c", work])
    time.sleep(1.5)
    own = worked(monitor)
    child.kill()
    child.wait()
    # The shell ends, so that no process of this program is an ancestor of the other one.
    command = f"'{sys.executable}' -c '{work}' > /dev/null & echo $!"
    other = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE)
    time.sleep(1.5)
    print(json.dumps(worked(monitor)))
    os.kill(int(other.stdout), 9)
    print(json.dumps(own))
    print(json.dumps([each.getMessage().partition(" (")[0].partition(" is ")[2] for each in said]))
""",
        tmp_path,
    )
    assert before == own == [False, []]
    assert meanwhile == [True, [1]]
    assert said == ["used by others, too"]
