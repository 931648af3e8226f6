"""`wattloop check` in an incomplete cluster: it names what is missing, and deletes its job.

tests/cluster/chart/test_check.py has a check that passes.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from support.control_plane.commands import ClusterCommand
from support.control_plane.control_plane import ControlPlane
from support.control_plane.operator_process import WATTLOOP


def command(plane: ControlPlane, *options: str) -> list[str]:
    return [str(WATTLOOP), "check", f"--kubeconfig={plane.admin_kubeconfig}", *options]


def run_check(plane: ControlPlane, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(plane, *options), capture_output=True, text=True, check=False, timeout=200)


@pytest.mark.usefixtures("crds")
def test_without_an_operator_the_check_fails_and_deletes_its_job(
    control_plane: ControlPlane, kubectl: ClusterCommand, namespace: str
) -> None:
    ran = run_check(control_plane, f"--namespace={namespace}", "--timeout-seconds=1")
    assert ran.returncode == 1
    assert f"created the RecurringTrainingJob {namespace}/wattloop-check-" in ran.stdout
    assert "the operator has not processed the job yet; is the operator running" in ran.stderr
    assert kubectl("get", "rtj", "--output=name", namespace=namespace) == ""


@pytest.mark.usefixtures("crds")
def test_a_check_that_is_interrupted_deletes_its_job(
    control_plane: ControlPlane, kubectl: ClusterCommand, namespace: str
) -> None:
    with subprocess.Popen(
        command(control_plane, f"--namespace={namespace}"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("created the RecurringTrainingJob")
        running.send_signal(signal.SIGTERM)
        assert running.wait(150) != 0
    assert kubectl("get", "rtj", "--output=name", namespace=namespace) == ""


@pytest.mark.usefixtures("crds")
def test_a_rejection_by_the_cluster_is_reported_with_its_message(control_plane: ControlPlane, tmp_path: Path) -> None:
    ran = run_check(control_plane, "--namespace=nowhere")
    assert ran.returncode == 1
    assert 'namespaces "nowhere" not found' in ran.stderr


@pytest.mark.parametrize(("options", "message"), [(["--timeout-seconds=0"], "found 0, expected a number above 0")])
def test_wrong_usage_is_rejected_before_any_request(
    options: list[str], message: str, control_plane: ControlPlane
) -> None:
    ran = run_check(control_plane, *options)
    assert ran.returncode == 2
    assert message in ran.stderr
