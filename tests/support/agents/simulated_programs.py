"""Programs that run beside the tests on the simulated machine in a given state folder."""

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
