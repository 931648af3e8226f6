"""A node that the real kwok plays, with pods that it runs and ends: thousands of trainings without a container.

It writes the status of the node and of pods by its own stages. Of a training it says that it runs for a while, and
that its termination message has the metric and the epochs.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from support.binaries.build import KWOK
from support.control_plane.commands import ClusterCommand
from support.control_plane.kind_controller import await_ready
from support.control_plane.processes import ServerProcess
from support.free_ports import free_port

NODE_NAME = "kwok"
_MANAGED = ("kwok.x-k8s.io/node", "fake")
# Its default has addresses for 254 pods.
_POD_NETWORK = "10.64.0.1/12"
_STAGES = ("kustomize", "stage")
_STAGE_FILES = ("node/fast/node-initialize.yaml", "pod/fast/pod-ready.yaml", "pod/fast/pod-delete.yaml")
_END_FILE = "pod/fast/pod-complete.yaml"
_START = re.compile(r"^( *)startedAt: .*$", re.MULTILINE)


@dataclass(frozen=True)
class PlayedTraining:
    """What each pod of a Job does."""

    seconds: float
    message: str


@contextlib.contextmanager
def kwok_node(program: Path, kubectl: ClusterCommand, folder: Path, training: PlayedTraining) -> Iterator[None]:
    """A context in which kwok plays a node that has room for all pods.

    Args:
        kubectl: An administrator's, who is also kwok's user.
        training: What each pod of a Job does.
    """
    health = free_port()
    configuration = folder / "kwok.yaml"
    configuration.write_text(yaml.safe_dump_all(_stages(training)), encoding="utf-8")
    command: list[str | Path] = [
        program,
        f"--kubeconfig={kubectl.kubeconfig}",
        f"--config={configuration}",
        f"--server-address=127.0.0.1:{health}",
        f"--cidr={_POD_NETWORK}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={'='.join(_MANAGED)}",
    ]
    process = ServerProcess("kwok", command, folder)
    try:
        await_ready(process, health)
        metadata = {"name": NODE_NAME, "annotations": dict([_MANAGED])}
        kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        # No controller removes the not-ready taint of a new node here.
        kubectl("patch", "node", NODE_NAME, "--type=merge", '--patch={"spec":{"taints":null}}')
        kubectl("wait", "node", NODE_NAME, "--for=condition=Ready", "--timeout=60s")
        yield
        kubectl("delete", "node", NODE_NAME)
    finally:
        process.stop()


def _stages(training: PlayedTraining) -> list[dict[str, Any]]:
    """kwok's own stages, of which the end of a Job's pod comes later, and says the start and the message."""
    folder = KWOK.sources().joinpath(*_STAGES)
    *stages, end = (yaml.safe_load((folder / name).read_text(encoding="utf-8")) for name in (*_STAGE_FILES, _END_FILE))
    # JSON is YAML, in which the message may have any character.
    lines = ("startedAt: {{ $origin.state.running.startedAt | Quote }}", f"message: {json.dumps(training.message)}")
    end["spec"]["next"]["statusTemplate"] = _START.sub(
        lambda found: "\n".join(f"{found[1]}{line}" for line in lines), end["spec"]["next"]["statusTemplate"]
    )
    end["spec"]["delay"] = {"durationMilliseconds": round(1000 * training.seconds)}
    return [*stages, end]
