"""Runs a control plane for as long as a person wants one: `python -m harness` in tests/cluster.

Prints where its kubeconfig and kubectl are and what is running, and ends with Ctrl-C.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from pathlib import Path

from support.binaries.build import CONTROL_PLANE, ensure
from support.control_plane.control_plane import running_control_plane


def main() -> None:
    """Starts, prints one JSON object on stdout, and waits for SIGINT or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    programs = ensure(CONTROL_PLANE)
    with (
        tempfile.TemporaryDirectory(prefix="wattloop-control-plane-") as folder,
        running_control_plane(programs, Path(folder)) as plane,
    ):
        kubeconfig = str(plane.admin_kubeconfig)
        about = {"kubeconfig": kubeconfig, "kubectl": str(programs["kubectl"]), "processes": plane.process_ids}
        print(json.dumps(about), flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            sys.exit(0)


if __name__ == "__main__":
    main()
