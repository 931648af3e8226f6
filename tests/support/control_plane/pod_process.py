"""Runs the containers of pods as local processes, with the environment and files of their pods."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.control_plane.operator_process import WATTLOOP
from support.control_plane.training import AUDIENCE, TokenOfPod, environment_of
from support.control_plane.waiting import Object
from support.python_path import PYTHON_PATH
from wattloop_operator.workloads.injection import CERTIFICATE_AUTHORITY_ANNOTATION, KUBEFLOW_AUTHORITY, KUBEFLOW_TOKEN

# The variables that name files of the token and the certificate authority.
_TOKENS = ("WATTLOOP_TOKEN_FILE", KUBEFLOW_TOKEN)
_AUTHORITIES = ("WATTLOOP_CA_FILE", KUBEFLOW_AUTHORITY)
# What scripts import takes seconds, so they share it. It fails if one of them does.
_FORKING = """
import importlib, json, os, runpy, sys
from pathlib import Path
from support.forked_process import forked

importlib.import_module(sys.argv[1])


def run(command, environment):
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command[1:]
    runpy.run_path(command[1], run_name="__main__")
    return 0


processes = [forked(lambda: run(*each[:2]), *map(Path, each[2:])) for each in json.loads(sys.argv[2])]
sys.exit(any([os.waitpid(each, 0)[1] for each in processes]))
"""


def run_container(
    pod: Object, folder: Path, token_of_pod: TokenOfPod, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the pod's first container to its end.

    Args:
        pod: The pod at the API server.
        folder: Folder for the files of its volumes.
        token_of_pod: Returns the token of a projected volume.
    """
    command, variables = _process(pod, folder, token_of_pod)
    if command[0].startswith("python"):
        command[0] = sys.executable
    return subprocess.run(
        command, env=variables | dict(environment or {}), capture_output=True, text=True, check=False, timeout=300
    )


def run_scripts(
    python: Path, imported: str, pods: Sequence[Object], folder: Path, token_of_pod: TokenOfPod
) -> list[str]:
    """Run the scripts of pods to their ends, in processes forked from one that has imported a module; their outputs.

    Args:
        pods: The pods at the API server, whose first containers have a Python file as the first argument.
        folder: Working directory, and folder for the files of their volumes.
        token_of_pod: Returns the token of a projected volume.
    """
    outputs = [folder / f"{pod['metadata']['uid']}.log" for pod in pods]
    runs = [
        (*_process(pod, folder, token_of_pod), str(output), str(output))
        for pod, output in zip(pods, outputs, strict=True)
    ]
    command = [python, "-c", _FORKING, imported, json.dumps(runs)]
    environment = os.environ | {"PYTHONPATH": PYTHON_PATH, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=folder, check=False, timeout=300)
    printed = [output.read_text(encoding="utf-8") for output in outputs]
    assert done.returncode == 0, printed
    return printed


def _process(pod: Object, folder: Path, token_of_pod: TokenOfPod) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a pod's first container."""
    container = pod["spec"]["containers"][0]
    variables = {"PATH": os.environ.get("PATH", ""), **environment_of(pod)}
    for names, text in (
        (_TOKENS, lambda: token_of_pod(pod, AUDIENCE)),
        (_AUTHORITIES, lambda: pod["metadata"]["annotations"][CERTIFICATE_AUTHORITY_ANNOTATION]),
    ):
        for name in variables.keys() & set(names):
            file = folder / f"{pod['metadata']['uid']}.{name}"
            file.write_text(text())
            variables[name] = str(file)
    command = [*(container.get("command") or [str(WATTLOOP)]), *container.get("args", ())]
    return [
        re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), each) for each in command
    ], variables
