"""The real API server accepts what `wattloop convert` makes of a CronJob that it has, and of each kind's example."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path

import pytest

from support.control_plane.commands import ClusterCommand

PROGRAM = Path(sysconfig.get_path("scripts")) / "wattloop"
SOURCES = Path(__file__).parents[2] / "manifests" / "cron"


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("source", sorted(SOURCES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_api_server_accepts_the_result(
    kubectl: ClusterCommand, namespace: str, source: Path, tmp_path: Path
) -> None:
    job = tmp_path / "job.yaml"
    subprocess.run([PROGRAM, "convert", str(source), "--output", str(job)], check=True, capture_output=True)
    text = job.read_text(encoding="utf-8").replace("  namespace: research\n", "")
    kubectl("create", "--validate=strict", "--filename=-", namespace=namespace, stdin=text)
    (made,) = kubectl.json("get", "rtj", namespace=namespace)["items"]
    assert made["spec"]["suspend"] is True


@pytest.mark.usefixtures("crds")
def test_a_cron_job_of_the_cluster_becomes_a_job_beside_it(kubectl: ClusterCommand, namespace: str) -> None:
    text = (SOURCES / "cron-job.yaml").read_text(encoding="utf-8").replace("  namespace: research\n", "")
    kubectl("create", "--filename=-", namespace=namespace, stdin=text)
    printed = kubectl("get", "cronjobs", "--output=yaml", namespace=namespace)
    converted = subprocess.run([PROGRAM, "convert", "-"], input=printed, check=True, capture_output=True, text=True)
    kubectl("create", "--validate=strict", "--filename=-", namespace=namespace, stdin=converted.stdout)
    (made,) = kubectl.json("get", "rtj", namespace=namespace)["items"]
    assert made["metadata"]["labels"] == {"team": "rec"}
    assert "last-applied" not in json.dumps(made["metadata"].get("annotations", {}))
    # The API server sets these defaults of a CronJob, so they count as set.
    assert made["spec"]["concurrencyPolicy"] == "Allow"
    assert made["spec"]["successfulHistoryLimit"] == 3
