"""A training whose length a test chooses: it needs the more epochs the further the batch size is from 64.

It runs in a pod of the example's image, with the real client, on the pod's simulated GPUs. If a test has created the
folder `journal`, it records the simulator's energy of its GPUs there, for `support.training_journal`.

Environment: EPOCH_SECONDS; HELD_GPUS, the number of held GPUs of the node that it waits for before it begins;
ENDLESS_ATTEMPT, the attempt whose second epoch does not end, so that a test can end it. With `spec.output` it writes a
model of one line, and the file `unreachable` beside the simulator's state keeps it from reaching its target.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path

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
    # Each GPU has its own time; this brings GPUs that other pods have used to the same time.
    machine.idle(gpus, 0)
    note(machine, gpus, "has aligned")
    attempt = os.environ["WATTLOOP_RECURRENCE"].rpartition("-")[2]
    is_endless = attempt == os.environ.get("ENDLESS_ATTEMPT")
    with wattloop.Run(batch_size=64, max_epochs=40) as run:
        await_held(machine, int(os.environ.get("HELD_GPUS", "0")))
        needed = 6 + 2 * abs(run.batch_size.bit_length() - 7)
        if (machine.path.parent / "unreachable").exists():
            needed = 1000
        for epoch in run.epochs():
            for _ in itertools.count() if is_endless and epoch == 1 else range(STEPS_AN_EPOCH):
                machine.occupy(gpus, work=TERAFLOP_A_STEP, intensity=0.8)
                note(machine, gpus, "worked")
                run.step(run.batch_size)
                time.sleep(epoch_seconds / STEPS_AN_EPOCH)
            print(f"epoch {epoch + 1} of {needed}", flush=True)
            if run.output_dir:
                write_model(Path(run.output_dir), f"epoch {epoch + 1} of {needed}")
            run.report(metric=(epoch + 1) / needed)


def write_model(folder: Path, text: str) -> None:
    """Replaces the model of this attempt."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.txt").write_text(text, encoding="utf-8")


def await_held(machine: nvml_simulator.Machine, gpus: int) -> None:
    """Waits until this number of GPUs of the node is held below its original limit."""
    while sum(gpu.power_limit_watts < FOUND_WATTS for gpu in machine.describe().gpus) < gpus:
        time.sleep(LOOKS_EVERY_SECONDS)


def note(machine: nvml_simulator.Machine, gpus: list[str], what: str) -> None:
    """Records the simulator's energy of these GPUs, atomically even if this process is killed."""
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
