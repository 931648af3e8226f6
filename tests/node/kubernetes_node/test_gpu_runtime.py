"""The replacement of runc gives GPUs to the containers that request them, and to no others."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.kubernetes_node import gpu_runtime

GIVEN = {
    "environment": {"LD_LIBRARY_PATH": "/driver"},
    "mounts": [{"host_path": "/here", "container_path": "/driver", "read_only": True}],
}


@pytest.fixture
def started(tmp_path: Path) -> Any:
    """Starts a container with these variables by the runtime; returns its configuration as runc would find it."""
    runc = tmp_path / "runc"
    runc.write_text("#!/bin/sh\nexit 0\n")
    runc.chmod(0o755)
    given = tmp_path / "given.json"
    given.write_text(json.dumps(GIVEN))

    def start(*variables: str) -> dict[str, Any]:
        configuration = tmp_path / "config.json"
        configuration.write_text(json.dumps({"process": {"env": list(variables)}, "mounts": []}))
        command = [sys.executable, "-I", "-S", gpu_runtime.__file__, str(given)]
        arguments = ["--root", "/run/runc", "create", "--bundle", str(tmp_path), "container"]
        subprocess.run([*command, *arguments], check=True, env={"PATH": str(tmp_path)})
        content: dict[str, Any] = json.loads(configuration.read_text())
        return content

    return start


def test_a_container_that_requests_gpus_gets_the_drivers_library(started: Any) -> None:
    configuration = started("NVIDIA_VISIBLE_DEVICES=all")
    assert "LD_LIBRARY_PATH=/driver" in configuration["process"]["env"]
    (mount,) = configuration["mounts"]
    assert (mount["source"], mount["destination"]) == ("/here", "/driver")
    assert "ro" in mount["options"]


@pytest.mark.parametrize("variables", [(), ("NVIDIA_VISIBLE_DEVICES=none",), ("NVIDIA_VISIBLE_DEVICES=",)])
def test_a_container_that_requests_none_is_unchanged(variables: tuple[str, ...], started: Any) -> None:
    assert started(*variables) == {"process": {"env": list(variables)}, "mounts": []}
