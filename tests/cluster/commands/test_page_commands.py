"""The commands of readers' pages for kubectl and its plugin succeed on a real API server with a job that ran."""

import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from support.control_plane.commands import ClusterCommand
from support.control_plane.job_manifest import job_manifest
from support.reader_pages.block_table import KUBECTL, blocks_of
from support.reader_pages.pages import Block
from support.recurrence_objects import recurrence_object

ROOT = Path(__file__).parents[3]
SCRIPTS = Path(sysconfig.get_path("scripts"))
RECURRENCE = "digits-00007-rdsfvh5b8-0"
ENDED = {"runRequest": {"ended": "release-7", "result": "Reached"}}
# Other tests run these: they serve, train, or need a running operator.
ELSEWHERE = re.compile(r"^(?:kubectl )?wattloop (?:ui|check|run) .*$", re.MULTILINE)
REPLACED = (
    (re.compile(r"\b(?:team-a|research)\b"), "{namespace}"),
    (re.compile(r"--context production"), "--context tests"),
    # Policies belong to the whole control plane.
    (re.compile(r"^(kubectl delete validating\S+)", re.MULTILINE), r"\1 --dry-run=server"),
)


@pytest.fixture
def job(kubectl: ClusterCommand, crds: None, namespace: str) -> str:
    """The namespace of the job `digits`, of which a recurrence has ended."""
    kubectl.apply(job_manifest(), namespace=namespace)
    uid = kubectl.json("get", "rtj", "digits", namespace=namespace)["metadata"]["uid"]
    body = recurrence_object(RECURRENCE, jobRef={"name": "digits", "uid": uid})
    body["metadata"] = {"name": RECURRENCE}
    kubectl.apply(body, namespace=namespace)
    status = {
        "result": "Reached",
        "epochs": "3",
        "completionTime": "2026-03-01T12:10:00Z",
        "usage": {
            "gpuEnergyJoules": "2000",
            "durationSeconds": "10",
            "devices": 1,
            "gpuProduct": "NVIDIA A40",
            "maxPowerLimitWatts": 300,
            "attribution": "Exclusive",
        },
        "progress": {"metric": "0.95"},
    }
    for target, written in ((f"trec/{RECURRENCE}", status), ("rtj/digits", ENDED)):
        patch = json.dumps({"status": written})
        kubectl("patch", target, "--subresource=status", "--type=merge", f"--patch={patch}", namespace=namespace)
    return namespace


@pytest.fixture
def environment(kubectl: ClusterCommand, job: str, tmp_path: Path) -> dict[str, str]:
    """That of a user whose context is the job's namespace."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(kubectl.kubeconfig.read_bytes())
    kubectl.as_user(kubeconfig)("config", "set-context", "--current", f"--namespace={job}")
    path = f"{kubectl.program.parent}:{SCRIPTS}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig)}


@pytest.mark.parametrize("block", blocks_of(KUBECTL), ids=str)
def test_the_commands_of_a_block_succeed(block: Block, job: str, environment: dict[str, str], tmp_path: Path) -> None:
    text = ELSEWHERE.sub("", block.text)
    for pattern, replacement in REPLACED:
        text = pattern.sub(replacement.replace("{namespace}", job), text)
    assert text.strip()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shell = ["bash", "-euo", "pipefail", "-c", text]
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
