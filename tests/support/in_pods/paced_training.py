"""A training whose length a test chooses: its target is reached after as many epochs as the batch size is far from 64.

Runs in a pod of the example's image, with the real client, on the simulated GPUs that the pod was given. Where a test
has made a folder for it, it notes what the simulator has integrated on its GPUs, for tests/node/training_journal.

Told by its environment: EPOCH_SECONDS; HELD_GPUS, for how many held GPUs of the node it waits before it begins;
ENDLESS_ATTEMPT, the attempt whose second epoch does not end: a test then has all the time it needs to end it.
"""

from __future__ import annotations

import itertools
import json
import os
import time

import nvml_simulator
import wattloop

STEPS_AN_EPOCH = 10
TERAFLOP_A_STEP = 312.0
FOUND_WATTS = 400.0
LOOKS_EVERY_SECONDS = 0.05


def main() -> None:
    """Trains: every step works on all GPUs of the pod, then waits."""
    epoch_seconds = float(os.environ["EPOCH_SECONDS"])
    gpus = os.environ["NVIDIA_VISIBLE_DEVICES"].split(",")
    machine = nvml_simulator.machine()
    note(machine, gpus, "begins")
    # Each GPU has a time of its own; those that others have used before are brought to the same one.
    machine.idle(gpus, 0)
    note(machine, gpus, "has aligned")
    attempt = os.environ["WATTLOOP_RECURRENCE"].rpartition("-")[2]
    is_endless = attempt == os.environ.get("ENDLESS_ATTEMPT")
    with wattloop.Run(batch_size=64, max_epochs=40) as run:
        await_held(machine, int(os.environ.get("HELD_GPUS", "0")))
        needed = 6 + 2 * abs(run.batch_size.bit_length() - 7)
        for epoch in run.epochs():
            for _ in itertools.count() if is_endless and epoch == 1 else range(STEPS_AN_EPOCH):
                machine.occupy(gpus, work=TERAFLOP_A_STEP, intensity=0.8)
                note(machine, gpus, "worked")
                run.step(run.batch_size)
                time.sleep(epoch_seconds / STEPS_AN_EPOCH)
            print(f"epoch {epoch + 1} of {needed}", flush=True)
            run.report(metric=(epoch + 1) / needed)


def await_held(machine: nvml_simulator.Machine, gpus: int) -> None:
    """Waits until so many GPUs of the node are held below the limit they came with: each training holds its own."""
    while sum(gpu.power_limit_watts < FOUND_WATTS for gpu in machine.describe().gpus) < gpus:
        time.sleep(LOOKS_EVERY_SECONDS)


def note(machine: nvml_simulator.Machine, gpus: list[str], what: str) -> None:
    """Writes down what the simulator has integrated on these GPUs; whole or not at all, whenever this is killed."""
    folder = machine.path.parent / "journal"
    if not folder.exists():
        return
    energy = {gpu.uuid: gpu.energy_microjoules for gpu in machine.describe().gpus if gpu.uuid in gpus}
    line = json.dumps({"what": what, "seconds": time.monotonic(), "energy_microjoules": energy}) + "\n"
    path = folder / f"{os.environ['HOSTNAME']}.jsonl"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main()
