"""The reporting API of a local run: no other user of the machine can reach it, and every training can."""

import json
import os
import stat
import tempfile
from pathlib import Path

import pytest

from support.local_runs.local_runs import TRAINING, LocalJob

pytestmark = pytest.mark.processes

# Writes where it reports, and which TCP ports the run listens on.
LOOKING_AROUND = """
import json, os, stat, urllib.parse

def listening_ports(pid):
    inodes = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        inodes.add(os.readlink(entry.path))
    rows = [line.split() for file in ("tcp", "tcp6") for line in open(f"/proc/{pid}/net/{file}").readlines()[1:]]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]

url = os.environ["WATTLOOP_REPORT_URL"]
socket = urllib.parse.unquote(url.split("/")[2])
with open("seen", "w") as seen:
    mode = os.stat(os.path.dirname(socket)).st_mode
    json.dump({"socket": socket, "mode": stat.S_IMODE(mode), "ports": listening_ports(os.getppid())}, seen)
"""
# As transformers' callback, which knows nothing of Wattloop.
CALLBACK = """
import datetime, json, os, time, urllib.request

values = {"eval_accuracy": 0.9, "eval_runtime": 0.5, "epoch": 1.0}
metrics = [{"name": name, "value": str(value)} for name, value in values.items()]
status = {"lastUpdatedTime": datetime.datetime.now(datetime.UTC).isoformat(), "metrics": metrics}
request = urllib.request.Request(
    os.environ["KUBEFLOW_TRAINER_SERVER_URL"],
    data=json.dumps({"trainerStatus": status}).encode(),
    headers={
        "Authorization": "Bearer " + open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read(),
        "Content-Type": "application/json",
    },
)
urllib.request.urlopen(request, timeout=60).close()
time.sleep(600)
"""


def test_a_run_listens_on_no_port_and_its_socket_is_in_a_folder_of_this_user_alone(local_job: LocalJob) -> None:
    local_job.job(LOOKING_AROUND + TRAINING)
    run = local_job.start("--recurrences", "1")
    assert run.ended() == 0, run.stderr.read_text()
    seen = json.loads((local_job.folder / "seen").read_text())
    assert (seen["mode"], seen["ports"]) == (stat.S_IRWXU, [])
    assert Path(seen["socket"]).name == "reports.sock"
    assert local_job.outcomes() == [("0", "0", "reached")]


def test_trainings_report_where_the_temporary_folder_is_too_long_for_a_sockets_path(
    local_job: LocalJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", None)
    local_job.job(LOOKING_AROUND + TRAINING)
    assert local_job.run("--recurrences", "1") == 0
    seen = json.loads((local_job.folder / "seen").read_text())
    assert seen["mode"] == stat.S_IRWXU
    assert len(os.fsencode(seen["socket"])) <= 107
    assert local_job.outcomes() == [("0", "0", "reached")]


def test_a_callback_for_kubeflow_trainer_which_knows_ports_alone_reports_too(local_job: LocalJob) -> None:
    target = {"metric": "eval_accuracy", "threshold": "0.9"}
    local_job.job(CALLBACK, reporting={"source": "KubeflowTrainer"}, objective={"target": target, "maxEpochs": 10})
    assert local_job.run("--recurrences", "1") == 0
    assert local_job.outcomes() == [("0", "0", "reached")]
