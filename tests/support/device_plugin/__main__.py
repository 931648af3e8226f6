"""`python -m device_plugin`: see `command.py`."""

import argparse
import logging
import os
import signal
import threading
from pathlib import Path

import nvml_simulator
from support.device_plugin.command import KUBELET_FOLDER
from support.device_plugin.devices import Device, allocation, devices_of
from support.device_plugin.plugin import Plugin
from support.device_plugin.service import Service
from wattloop.gpus.nvml import NvmlError, Session


def answers(uuid: str) -> bool:
    """Whether a GPU answers NVML; one that fell off the bus, or has no driver, does not."""
    try:
        with Session() as nvml:
            nvml.gpu(uuid).power_watts()
    except NvmlError:
        return False
    return True


def main() -> None:
    """Runs until SIGTERM."""
    parser = argparse.ArgumentParser(prog="device_plugin", description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--kubelet-folder", type=Path, default=KUBELET_FOLDER)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    state: Path = arguments.state.absolute()
    library = nvml_simulator.build_library()
    nvml_simulator.load()
    os.environ[nvml_simulator.STATE_VARIABLE] = str(state)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())

    def devices() -> tuple[Device, ...]:
        return devices_of(nvml_simulator.describe(state), answers, arguments.replicas)

    service = Service(lambda ids: allocation(ids, library=library, state=state))
    Plugin(arguments.kubelet_folder, devices, service).run(stopping)


if __name__ == "__main__":
    main()
