"""The devices, their health, and the content of a container that gets them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from nvml_simulator import STATE_VARIABLE, Description, device_plugin_ids
from nvml_simulator.compilation import LIBRARY_VARIABLE, SONAME

# The folders of the library and of the GPUs' state in containers, which images do not have.
LIBRARY_FOLDER = "/usr/local/nvidia/lib64"
STATE_FOLDER = "/run/simulated-gpus"


@dataclass(frozen=True, order=True)
class Device:
    """One device, as the kubelet counts it: a GPU, a part of one, or a share of one's time."""

    id: str
    healthy: bool


@dataclass(frozen=True)
class Mount:
    """A folder of the machine in a container."""

    host_path: str
    container_path: str
    read_only: bool


@dataclass(frozen=True)
class Allocation:
    """The response for a container with its devices."""

    environment: dict[str, str]
    mounts: tuple[Mount, ...]


def devices_of(machine: Description, answers: Callable[[str], bool], replicas: int) -> tuple[Device, ...]:
    """All devices of a machine.

    Args:
        answers: Whether the GPU of that uuid answers NVML.
        replicas: How many containers share each device by time slicing.
    """
    parents = {part.uuid: gpu.uuid for gpu in machine.gpus for part in gpu.mig_devices}
    health = {gpu.uuid: machine.driver_loaded and answers(gpu.uuid) for gpu in machine.gpus}
    ids = device_plugin_ids(machine, replicas=replicas)
    return tuple(Device(each, health[parents.get(uuid_of(each), uuid_of(each))]) for each in ids)


def uuid_of(device: str) -> str:
    """The uuid in a device's id.

    Example:
        >>> uuid_of("GPU-1::3")
        'GPU-1'
    """
    return device.partition("::")[0]


def allocation(devices: Iterable[str], *, library: Path, state: Path) -> Allocation:
    """The same as NVIDIA's toolkit gives to a container: the driver's library and the devices.

    Args:
        library: The simulated library on the machine.
        state: The state file on the machine, in place of the device nodes.
    """
    uuids = dict.fromkeys(uuid_of(device) for device in devices)
    return Allocation(
        environment={
            "NVIDIA_VISIBLE_DEVICES": ",".join(uuids),
            "LD_LIBRARY_PATH": LIBRARY_FOLDER,
            LIBRARY_VARIABLE: f"{LIBRARY_FOLDER}/{SONAME}",
            STATE_VARIABLE: f"{STATE_FOLDER}/{state.name}",
        },
        mounts=(
            Mount(str(library.parent), LIBRARY_FOLDER, read_only=True),
            # Writable: a process that works on a GPU tells so there, as it would by the device node.
            Mount(str(state.parent), STATE_FOLDER, read_only=False),
        ),
    )
