"""Whether this machine has NVIDIA's driver, whose GPUs a command would use."""

import subprocess
import sys

PROBE = "import sys; from wattloop_operator.local.local_gpus import has_driver; sys.exit(has_driver())"


def has_nvidia_driver() -> bool:
    """Asked in a process of its own, because this one may have loaded the simulator's driver."""
    return bool(subprocess.run([sys.executable, "-c", PROBE], check=False).returncode)
