"""Runs a control plane for manual use: `PYTHONPATH=tests python -m support.control_plane`.

Prints its kubeconfig, kubectl and process ids as one JSON object; Ctrl-C ends it.
"""

import json
import signal
import sys
import tempfile
from pathlib import Path

from support.binaries.build import CONTROL_PLANE, ensure
from support.control_plane.control_plane import running_control_plane


def main() -> None:
    """Start it, print one JSON object on stdout, and wait for SIGINT or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    programs = ensure(CONTROL_PLANE)
    with (
        tempfile.TemporaryDirectory(prefix="wattloop-control-plane-") as folder,
        running_control_plane(programs, Path(folder)) as plane,
    ):
        kubeconfig = str(plane.admin_kubeconfig)
        description = {"kubeconfig": kubeconfig, "kubectl": str(programs["kubectl"]), "processes": plane.process_ids}
        print(json.dumps(description), flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            sys.exit(0)


if __name__ == "__main__":
    main()
