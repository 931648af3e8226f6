"""`wattloop check` in an incomplete cluster: it names what is missing, and deletes its job.

tests/cluster/chart/test_check.py has a check that passes.
"""

import signal
import subprocess

import pytest

from support.control_plane.commands import ClusterCommand
from support.control_plane.fixtures import Wattloop
from support.control_plane.operator_process import WATTLOOP
from wattloop.commands.main import EXIT_FAILURE, EXIT_USAGE


@pytest.mark.usefixtures("crds")
def test_without_an_operator_the_check_fails_and_deletes_its_job(
    wattloop: Wattloop, kubectl: ClusterCommand, namespace: str
) -> None:
    code, out, error = wattloop("check", f"--namespace={namespace}", "--timeout-seconds=1")
    assert code == EXIT_FAILURE
    assert f"created the RecurringTrainingJob {namespace}/wattloop-check-" in out
    assert "the operator has not processed the job yet; is the operator running" in error
    assert kubectl("get", "rtj", "--output=name", namespace=namespace) == ""


@pytest.mark.usefixtures("crds")
def test_a_check_that_is_interrupted_deletes_its_job(kubectl: ClusterCommand, namespace: str) -> None:
    command = [str(WATTLOOP), "check", f"--kubeconfig={kubectl.kubeconfig}", f"--namespace={namespace}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline().startswith("created the RecurringTrainingJob")
        running.send_signal(signal.SIGTERM)
        assert running.wait(150) != 0
    assert kubectl("get", "rtj", "--output=name", namespace=namespace) == ""


@pytest.mark.usefixtures("crds")
def test_wrong_usage_and_a_rejection_by_the_cluster_are_reported(wattloop: Wattloop) -> None:
    code, _, error = wattloop("check", "--namespace=nowhere", "--timeout-seconds=0")
    assert (code, "found 0, expected a number above 0" in error) == (EXIT_USAGE, True)
    code, _, error = wattloop("check", "--namespace=nowhere")
    assert (code, 'namespaces "nowhere" not found' in error) == (EXIT_FAILURE, True)
