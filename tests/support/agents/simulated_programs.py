"""The types of the simulator's fixtures, and programs that run beside the tests on a machine of a given state file."""

from collections.abc import Callable
from types import ModuleType

from nvml_simulator import Machine

MakeMachine = Callable[..., Machine]
StartNvml = Callable[[], ModuleType]

HOLD_THE_LOCK = """
import sys, nvml_simulator
machine = nvml_simulator.Machine(sys.argv[1])
nvml_simulator.load().wattloopSimulatorAbandonLock(machine._machine, 0)
print("locked", flush=True)
sys.stdin.read()
"""
WORK_FOR_LONG = """
import sys, threading, nvml_simulator
machine = nvml_simulator.Machine(sys.argv[1])
threading.Thread(target=machine.occupy, args=(0, 1e6, 0.5), daemon=True).start()
while machine.describe().gpus[0].busy_seconds == 0:
    pass
print("working", flush=True)
sys.stdin.read()
"""
# Says "full" for each unit of work that has no slot.
FILL_GPU = """
import os, sys, threading, nvml_simulator, wattloop.errors
machine = nvml_simulator.Machine(sys.argv[1])
def work():
    try:
        machine.occupy(0, 1e6, 0.5)
    except wattloop.errors.OperationError:
        # One call: print writes the newline separately, so that lines of threads could mix.
        os.write(1, b"full\\n")
for _ in range(17):
    threading.Thread(target=work, daemon=True).start()
sys.stdin.read()
"""
