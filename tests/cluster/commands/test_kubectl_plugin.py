"""`kubectl wattloop`: the real kubectl finds the plugin, and its options mean what they mean to kubectl."""

import json
import os
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.control_plane.commands import ClusterCommand
from support.control_plane.job_manifest import job_manifest

SCRIPTS = Path(sysconfig.get_path("scripts"))
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def with_plugin(kubectl: ClusterCommand) -> Kubectl:
    """Runs kubectl with the plugin on its path."""
    environment = {"PATH": f"{SCRIPTS}:{os.environ['PATH']}", "HOME": str(kubectl.home)}

    def run(*words: str, kubeconfig: Path | None = kubectl.kubeconfig) -> subprocess.CompletedProcess[str]:
        named = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}
        return subprocess.run(
            [kubectl.program, *words], capture_output=True, text=True, check=False, env=environment | named
        )

    return run


@pytest.fixture
def job(kubectl: ClusterCommand, crds: None, namespace: str) -> str:
    """The namespace of a job."""
    kubectl.apply(job_manifest(), namespace=namespace)
    return namespace


def test_kubectl_lists_the_plugin_and_runs_it(with_plugin: Kubectl) -> None:
    assert f"{SCRIPTS / 'kubectl-wattloop'}" in with_plugin("plugin", "list").stdout
    helped = with_plugin("wattloop", "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.startswith("usage: kubectl wattloop SUBCOMMAND [OPTIONS]")
    assert with_plugin("wattloop", "histori").stderr.startswith("kubectl wattloop: unknown subcommand 'histori'")


def test_history_reads_the_namespace_and_the_kubeconfig_that_are_named(
    with_plugin: Kubectl, kubectl: ClusterCommand, job: str
) -> None:
    words = ("wattloop", "history", "digits", "-n", job, "--format=json")
    assert json.loads(with_plugin(*words).stdout) == []
    named = with_plugin(*words, "--kubeconfig", str(kubectl.kubeconfig), "--context=tests", kubeconfig=None)
    assert json.loads(named.stdout) == []
    missing = with_plugin(*words, "--kubeconfig", "/no/such/file", kubeconfig=None)
    assert missing.returncode == 1
    assert "name a kubeconfig in KUBECONFIG or by --kubeconfig" in missing.stderr
    nowhere = with_plugin("wattloop", "history", "digits", "--namespace", "nowhere")
    assert nowhere.returncode == 2
    assert "kubectl wattloop history: " in nowhere.stderr
    assert "there is no RecurringTrainingJob nowhere/digits" in nowhere.stderr


def test_plot_run_and_check_are_there(with_plugin: Kubectl, job: str, tmp_path: Path) -> None:
    plots = with_plugin("wattloop", "plot", "digits", "-n", job, "--output", str(tmp_path))
    assert plots.returncode in (0, 1), plots.stderr
    assert "Traceback" not in plots.stderr
    no_file = with_plugin("wattloop", "run", "/no/such/job.yaml")
    assert (no_file.returncode, "no readable file" in no_file.stderr) == (2, True)
    denied = with_plugin("wattloop", "check", "-n", "nowhere", "--timeout-seconds=5")
    assert denied.returncode == 1
    assert "nowhere" in denied.stderr


def test_kubectl_completes_the_words_of_the_plugin(with_plugin: Kubectl) -> None:
    answer: Any = with_plugin("__complete", "wattloop", "history", "--format", "")
    assert answer.stdout.splitlines() == ["table", "csv", "json", "focus", ":4"]
    assert "history" in with_plugin("__complete", "wattloop", "hist").stdout.splitlines()
