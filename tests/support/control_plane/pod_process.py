"""Runs the container of a pod as a local process, with the environment and files of its pod."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.control_plane.operator_process import WATTLOOP
from support.control_plane.training import AUDIENCE, TokenOfPod, environment_of
from support.control_plane.waiting import Object
from wattloop_operator.workloads.injection import CERTIFICATE_AUTHORITY_ANNOTATION


def run_container(
    pod: Object, folder: Path, token_of_pod: TokenOfPod, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the pod's first container to its end.

    Args:
        pod: The pod at the API server.
        folder: Folder for the files of its volumes.
        token_of_pod: Returns the token of a projected volume.
        environment: Further variables.
    """
    container = pod["spec"]["containers"][0]
    command = [*(container.get("command") or [str(WATTLOOP)]), *container.get("args", ())]
    if command[0].startswith("python"):
        command[0] = sys.executable
    variables = environment_of(pod)
    for variable, text in (
        ("WATTLOOP_TOKEN_FILE", lambda: token_of_pod(pod, AUDIENCE)),
        ("WATTLOOP_CA_FILE", lambda: pod["metadata"]["annotations"][CERTIFICATE_AUTHORITY_ANNOTATION]),
    ):
        if variable in variables:
            file = folder / f"{pod['metadata']['uid']}.{variable}"
            file.write_text(text())
            variables[variable] = str(file)
    inherited = {"PATH": os.environ.get("PATH", "")}
    return subprocess.run(
        command,
        env=inherited | variables | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
