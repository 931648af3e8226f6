"""A cluster to play with: `python -m kubernetes_node up`, `load`, `down` and `status` (make cluster, cluster-image, …).

`up` starts the node in the background, installs Wattloop on it and says how to use it. A machine runs one at a time.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.binaries.build import NODE, BinariesUnavailableError, BuildFailedError, ensure, origins
from support.control_plane.commands import CommandError
from support.images import ImagesUnavailableError, built_images
from support.kubernetes_node.clean_up import clean_up
from support.kubernetes_node.containerd import control
from support.kubernetes_node.folders import NodeFolders
from support.kubernetes_node.installation import OPERATORS, RELEASE, install, prepare
from support.kubernetes_node.node import About
from support.kubernetes_node.record import Record, machine_is_locked
from support.kubernetes_node.requirements import missing_requirement
from support.kubernetes_node.running_node import supervisor_command

_ENDS_WITHIN_SECONDS = 240.0


def main() -> int:
    """The command line; 0 when it is done, 1 when it could not be."""
    parser = argparse.ArgumentParser(
        prog="python -m kubernetes_node", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=["up", "load", "down", "status"])
    parser.add_argument("archive", nargs="?", type=Path, help="load: an image, as docker save or buildah push wrote it")
    parser.add_argument("--gpus", type=int, default=4, help="simulated GPUs of the node; default: 4")
    arguments = parser.parse_args()
    if arguments.verb == "up":
        return up(arguments.gpus)
    if arguments.verb == "load":
        return load(arguments.archive)
    return down() if arguments.verb == "down" else status()


def up(gpus: int) -> int:
    """Starts a node and installs the chart."""
    missing = missing_requirement()
    if missing is None and machine_is_locked():
        missing = "a node runs already: make cluster-down ends it"
    if missing is not None:
        return _could_not(missing)
    start = time.monotonic()

    def begin(number: int, step: str) -> None:
        print(f"[step {number} of 4, {(time.monotonic() - start) / 60:.1f} min] {step}", file=sys.stderr, flush=True)

    try:
        begin(1, "programs: what is not on PATH in a version that fits, nor in the cache, is built in minutes")
        print("\n".join(f"  {line}" for line in origins(ensure(NODE, at_once=True))), file=sys.stderr)
        begin(2, "images of this checkout")
        images = built_images()
        begin(3, "the node")
        about = _start_in_background(gpus)
        begin(4, "Wattloop, by Helm")
        prepare(about, images.values())
        install(about)
    except (BinariesUnavailableError, BuildFailedError, ImagesUnavailableError, CommandError) as error:
        return _could_not(str(error))
    _say_how_to_use(about)
    print(f"\nIt took {(time.monotonic() - start) / 60:.1f} min.")
    return 0


def load(archive: Path | None) -> int:
    """Loads an image on the node that runs, under the name that is in its archive."""
    record = Record.read()
    if record is None or not machine_is_locked():
        return _could_not("no node runs here: make cluster starts one")
    if archive is None or not archive.is_file():
        return _could_not(f"found no image at {archive}, expected a file of docker save: ARCHIVE=image.tar")
    try:
        print(control(NodeFolders(record.folder), "images", "import", str(archive)), end="")
    except subprocess.CalledProcessError as error:
        return _could_not(f"{archive} is no image: {error.stderr.strip()}")
    return 0


def down() -> int:
    """Ends the node that runs, or cleans up after one that was killed."""
    record = Record.read()
    if record is None:
        print("no node runs here")
    elif machine_is_locked():
        os.kill(record.supervisor, signal.SIGTERM)
        deadline = time.monotonic() + _ENDS_WITHIN_SECONDS
        while machine_is_locked():
            if time.monotonic() > deadline:
                return _could_not(f"process {record.supervisor} has not ended after {_ENDS_WITHIN_SECONDS:.0f} s")
            time.sleep(0.1)
    else:
        clean_up(record)
    return 0


def status() -> int:
    """Says how to use the node that runs; 1 where none does."""
    record = Record.read()
    if record is None or not machine_is_locked():
        return _could_not("no node runs here")
    _say_how_to_use(About.read(record.folder))
    return 0


def _start_in_background(gpus: int) -> About:
    with tempfile.TemporaryFile("w+") as said:
        supervisor = subprocess.Popen(
            supervisor_command(f"--gpus={gpus}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
        )
        folder = supervisor.stdout.readline().strip()
        if not folder:
            supervisor.wait()
            said.seek(0)
            sys.exit(f"the node did not start:\n{said.read()}")
    return About.read(Path(folder))


def _say_how_to_use(about: About) -> None:
    programs = ":".join(str(Path(about.programs[name]).parent) for name in ("kubectl", "helm"))
    print(f"""
A node with simulated GPUs runs, and Wattloop on it (namespace {OPERATORS}).

    export KUBECONFIG={about.kubeconfig} PATH={programs}:$PATH WATTLOOP_NODE={about.folder}
    helm test {RELEASE} --namespace {OPERATORS}
    kubectl apply -f examples/digits/job.yaml
    kubectl patch rtj digits --type=merge --patch '{{"spec": {{"runRequest": "1"}}}}'
    kubectl get rtj,trec

Your image: docker save --output image.tar NAME, then make cluster-image ARCHIVE=image.tar, and
imagePullPolicy: Never or a tag other than latest in the template, since the node reaches no registry.
Time passes on its GPUs by simulated work alone (nvml_simulator.occupy, as in examples/digits): a script without it
runs, but has no energy, so nothing is learned from it.

Other values: helm upgrade {RELEASE} $WATTLOOP_NODE/chart --namespace {OPERATORS} --reset-then-reuse-values --set …
That is the chart of this checkout with the node's own folders.

make cluster-down ends it and leaves nothing.""")


def _could_not(why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
