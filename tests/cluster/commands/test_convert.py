"""The real API server accepts what `wattloop convert` makes of a CronJob, of a file and of its own.

Whether it accepts the workload of another cron kind depends on the kinds that the chart allows.
"""

import json
from pathlib import Path

import pytest

from support.control_plane.commands import ClusterCommand
from wattloop.commands.main import main

SOURCE = Path(__file__).parents[2] / "manifests" / "cron" / "cron-job.yaml"


@pytest.mark.usefixtures("crds")
def test_the_api_server_accepts_the_result(kubectl: ClusterCommand, namespace: str, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    assert main(["convert", str(SOURCE), "--output", str(job)]) == 0
    text = job.read_text(encoding="utf-8").replace("  namespace: research\n", "")
    kubectl("create", "--validate=strict", "--filename=-", namespace=namespace, stdin=text)
    (made,) = kubectl.json("get", "rtj", namespace=namespace)["items"]
    assert made["spec"]["suspend"] is True


@pytest.mark.usefixtures("crds")
def test_a_cron_job_of_the_cluster_becomes_a_job_beside_it(
    kubectl: ClusterCommand, namespace: str, tmp_path: Path
) -> None:
    text = SOURCE.read_text(encoding="utf-8").replace("  namespace: research\n", "")
    kubectl("create", "--filename=-", namespace=namespace, stdin=text)
    cron_jobs, job = tmp_path / "cron-jobs.yaml", tmp_path / "job.yaml"
    cron_jobs.write_text(kubectl("get", "cronjobs", "--output=yaml", namespace=namespace))
    assert main(["convert", str(cron_jobs), "--output", str(job)]) == 0
    kubectl("create", "--validate=strict", f"--filename={job}", namespace=namespace)
    (made,) = kubectl.json("get", "rtj", namespace=namespace)["items"]
    assert made["metadata"]["labels"] == {"team": "rec"}
    assert "last-applied" not in json.dumps(made["metadata"].get("annotations", {}))
    # The API server sets these defaults of a CronJob, so they count as set.
    assert made["spec"]["concurrencyPolicy"] == "Allow"
    assert made["spec"]["successfulRunsHistoryLimit"] == 3
