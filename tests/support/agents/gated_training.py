"""A training that waits at gates, so that tests can kill processes at a defined moment of a hold."""

# On two GPUs; waits at gates in its working folder: before it holds its limit, and with all done but giving it back.
TRAINING = """
import time
from pathlib import Path
import wattloop
import nvml_simulator

def wait_at(gate):
    Path(f"{gate}.reached").touch()
    while not Path(f"{gate}.open").exists():
        time.sleep(0.01)

wait_at("hold")
with wattloop.Run() as run:
    for epoch in run.epochs():
        nvml_simulator.occupy([0, 1], work=3120.0, intensity=0.8)
        run.step()
        run.report(metric=0.2 * (epoch + 1))
    wait_at("release")
"""
