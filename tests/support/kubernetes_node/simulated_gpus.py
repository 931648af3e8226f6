"""The node's simulated GPUs, and the runtime class that shows all of them to the agent."""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import nvml_simulator
from support.device_plugin.devices import allocation
from support.kubernetes_node.containerd import GPU_RUNTIME
from support.kubernetes_node.folders import NodeFolders

_RUNTIME = Path(__file__).with_name("gpu_runtime.py")


def make_gpus(folders: NodeFolders, count: int) -> Path:
    """Makes the GPUs and returns their state file, which every user of the node's containers may open."""
    folder = folders.folder / "gpus"
    folder.mkdir()
    state = nvml_simulator.create(folder / "state", model="A100", count=count, clock="virtual")
    # Everybody's, as /dev/nvidia0 is.
    state.chmod(0o666)
    return state


def write_gpu_runtime(folders: NodeFolders, state: Path) -> Path:
    """Writes the program that containerd calls in runc's place for pods of the class: they get what a device gets."""
    given = asdict(allocation([], library=nvml_simulator.build_library(), state=state))
    # The container itself has named its visible GPUs.
    del given["environment"]["NVIDIA_VISIBLE_DEVICES"]
    described = folders.folder / "gpu-runtime.json"
    described.write_text(json.dumps(given), encoding="utf-8")
    program = folders.folder / "gpu-runtime"
    words = [sys.executable, "-I", "-S", str(_RUNTIME), str(described)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def runtime_class() -> dict[str, Any]:
    """The object by which a pod asks for it, named as on nodes with NVIDIA's runtime."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": GPU_RUNTIME},
        "handler": GPU_RUNTIME,
    }
