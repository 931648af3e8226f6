"""The ids under which NVIDIA's device plugin offers a machine's GPUs to the kubelet."""

from __future__ import annotations

from nvml_simulator.description import Description


def device_plugin_ids(machine: Description, *, replicas: int = 1) -> tuple[str, ...]:
    """The ids of all that can be given to containers: MIG devices where a GPU is cut into them, else the GPU.

    Args:
        machine: See `nvml_simulator.Machine.describe`.
        replicas: How many containers share each device by time slicing; 1: none does.
    """
    devices = [
        uuid
        for gpu in machine.gpus
        for uuid in ([part.uuid for part in gpu.mig_devices] if gpu.mig_devices else [gpu.uuid])
    ]
    if replicas == 1:
        return tuple(devices)
    return tuple(f"{device}::{replica}" for device in devices for replica in range(replicas))
