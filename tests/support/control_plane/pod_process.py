"""Runs the container of a pod as a process of this machine, with what its pod would give it."""

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
    """Runs the pod's first container to its end.

    Args:
        pod: The pod, as it is at the API server.
        folder: Where what its volumes would show is written.
        token_of_pod: Gives the token of a projected volume.
        environment: Further variables.
    """
    container = pod["spec"]["containers"][0]
    words = [*(container.get("command") or [str(WATTLOOP)]), *container.get("args", ())]
    if words[0].startswith("python"):
        words[0] = sys.executable
    variables = environment_of(pod)
    for variable, text in (
        ("WATTLOOP_TOKEN_FILE", lambda: token_of_pod(pod, AUDIENCE)),
        ("WATTLOOP_CA_FILE", lambda: pod["metadata"]["annotations"][CERTIFICATE_AUTHORITY_ANNOTATION]),
    ):
        if variable in variables:
            shown = folder / f"{pod['metadata']['uid']}.{variable}"
            shown.write_text(text())
            variables[variable] = str(shown)
    inherited = {"PATH": os.environ.get("PATH", "")}
    return subprocess.run(
        words,
        env=inherited | variables | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
