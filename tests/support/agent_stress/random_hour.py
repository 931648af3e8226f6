"""A program: an hour of simulated time with random requests of 50 callers, compared with the model.

``python random_hour.py FOLDER {process,pod} REQUESTS SEED`` prints as JSON the events, and the resources of the process
at each of four quiet points, at which there is no lease: file descriptors, threads, Python's memory blocks, resident
memory. The seed determines the requests; the agent determines the order of concurrent ones.
"""

import asyncio
import gc
import json
import logging
import os
import sys
import threading
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from typing import Any

import nvml_simulator
from nvml_simulator.models import model_named
from support.agent_stress.agent_model import GRAPHICS, MEMORY, POWER, Device, Model
from support.agent_stress.caller_identities import Identities, Pods, Processes
from support.agent_stress.caller_pool import CallerPool
from support.agent_stress.caller_processes import CallerSpawner
from support.agent_stress.node_in_process import NodeInProcess

GPUS = 8
CALLERS = 50
HOUR_SECONDS = 3600.0
QUARTERS = 4
PAGE_KIBIBYTES = os.sysconf("SC_PAGE_SIZE") // 1024


def resources_of_process() -> dict[str, int]:
    """The resources that must not grow."""
    gc.collect()
    return {
        # The smallest of several numbers: the ledger's thread may write its file now.
        "files": min(len(os.listdir("/proc/self/fd")) for _ in range(50)),  # noqa: PTH208
        "threads": threading.active_count(),
        "blocks": sys.getallocatedblocks(),
        "resident_kibibytes": int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIBIBYTES,
    }


def new_model(gpus: list[str]) -> Model:
    """A model with every GPU at its initial values."""
    table = model_named("A100")
    clocks = {GRAPHICS: table.graphics_clocks_megahertz, MEMORY: table.memory_clocks_megahertz}
    device = Device(*table.power_limit_range_watts, {name: tuple(map(float, steps)) for name, steps in clocks.items()})
    found = {POWER: table.default_power_limit_watts, GRAPHICS: None, MEMORY: None}
    return Model(device, {(gpu, setting): value for gpu in gpus for setting, value in found.items()})


async def hour(pool: CallerPool, requests: int) -> list[dict[str, int]]:
    """Run the hour; returns the resources at the quiet points."""
    await pool.start()
    await pool.fill(CALLERS)
    quiet = []
    for quarter in range(QUARTERS):
        while pool.counts["requests"] < requests * (quarter + 1) / QUARTERS:
            await pool.burst(1.1 * HOUR_SECONDS / requests)
        await pool.release_everything()
        await pool.fill(CALLERS)
        await pool.await_connections()
        quiet.append(resources_of_process())
    await pool.close()
    return quiet


def main(folder: Path, identity: str, requests: int, seed: int) -> dict[str, Any]:
    logging.getLogger("wattloop_agent").addHandler(logging.NullHandler())
    logging.getLogger("wattloop_agent").propagate = False
    spawner = CallerSpawner(folder / "agent.sock")
    state = nvml_simulator.create(folder / "gpus", model="A100", count=GPUS, clock="virtual", permission="anyone")
    os.environ[nvml_simulator.STATE_VARIABLE] = str(state)
    with nvml_simulator.Machine(state) as machine:
        gpus = [gpu.uuid for gpu in machine.describe().gpus]
        making: AbstractContextManager[Identities] = nullcontext(Processes())
        if identity == "pod":
            making = Pods.on(folder, gpus)
        with making as identities:
            node = NodeInProcess(folder, identities.make_authenticator)
            pool = CallerPool(node, spawner, identities, machine, new_model(gpus), Random(seed))
            quiet = asyncio.run(hour(pool, requests))
    spawner.close()
    refusals: Counter[str] = pool.refusals
    return {"counts": pool.counts, "refusals": refusals, "simulated_seconds": node.now_seconds, "quiet": quiet}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
