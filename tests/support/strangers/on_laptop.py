"""Strangers as jobs of the local mode."""

import shutil
from pathlib import Path
from typing import Any

from support.local_runs.local_runs import LocalJob
from support.strangers.stranger import DEVICE, SCRIPTS, Stranger


def local_job(stranger: Stranger, folder: Path, **spec: Any) -> LocalJob:
    """Write script, device and manifest into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    local = LocalJob(folder)
    command = ["python", stranger.script]
    container = {
        "name": "train",
        "image": "none",
        "command": command,
        "args": [*stranger.arguments],
        "env": [{"name": "DEVICE_PACE", "value": str(stranger.pace)}],
    }
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}
    local.job(name=stranger.name, **stranger.fields(template=template, **spec))
    for name in (stranger.script, DEVICE):
        shutil.copyfile(SCRIPTS / name, folder / name)
    return local
