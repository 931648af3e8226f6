"""How the plugin is started as a process."""

import sys
from pathlib import Path

from support.python_path import PYTHON_PATH

KUBELET_FOLDER = Path("/var/lib/kubelet/device-plugins")
"""Fixed by the kubelet for any root."""


def device_plugin_command(state: Path, *, replicas: int = 1, kubelet_folder: Path = KUBELET_FOLDER) -> list[str]:
    """The command of a plugin that runs until SIGTERM.

    Args:
        state: The state file of the simulated GPUs. Their state is their health: with
            ``Machine(state).inject_fault("*", code=15, gpu=uuid)`` a GPU is lost, and unhealthy.
        replicas: How many containers share each device by time slicing; 1: none does.
        kubelet_folder: The folder of the kubelet's registration socket.
    """
    options = [f"--state={state}", f"--replicas={replicas}", f"--kubelet-folder={kubelet_folder}"]
    return ["/usr/bin/env", f"PYTHONPATH={PYTHON_PATH}", sys.executable, "-m", "support.device_plugin", *options]
