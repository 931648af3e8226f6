"""`wattloop history` and `wattloop plot` on a real API server, with only a kubeconfig."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.control_plane.commands import ClusterCommand, CommandError
from support.control_plane.control_plane import ControlPlane
from support.control_plane.kubeconfig import write_kubeconfig

pytestmark = pytest.mark.usefixtures("crds")

JOB: dict[str, Any] = {
    "apiVersion": "wattloop.dev/v1alpha1",
    "kind": "RecurringTrainingJob",
    "metadata": {"name": "digits"},
    "spec": {
        "trigger": {"manual": {}},
        "objective": {"energyWeightPercent": 100, "target": {"metric": "accuracy", "threshold": "0.97"}},
        "batchSize": {"default": 32, "candidates": [32, 64]},
        "template": {
            "job": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}}
        },
    },
}


def recurrence(uid: str, index: int, batch_size: int) -> dict[str, Any]:
    return {
        "apiVersion": "wattloop.dev/v1alpha1",
        "kind": "TrainingRecurrence",
        "metadata": {"name": f"digits-{uid[:4]}-{index}"},
        "spec": {
            "jobRef": {"name": "digits", "uid": uid},
            "index": index,
            "attempt": 0,
            "slot": str(index),
            "scheduledTime": "2026-03-01T00:00:00Z",
            "batchSize": batch_size,
            "maxEpochs": 100,
            "target": {"metric": "accuracy", "threshold": "0.97"},
            "learningRateScale": "1",
            "energyWeightPercent": 100,
            "decision": {
                "policy": "knowledgeGradient",
                "kind": "Trial",
                "reason": "every batch size is tried",
                "seed": "1",
                "digest": "none",
            },
        },
    }


def ended(energy_joules: str) -> str:
    gpu = {
        "uuid": "GPU-0",
        "startEnergyMillijoules": 0,
        "energyMillijoules": 1,
        "startTimeSeconds": "0",
        "timeSeconds": "1",
    }
    status = {
        "result": "Reached",
        "epochs": "10",
        "completionTime": "2026-03-01T00:10:00Z",
        "usage": {"gpuEnergyJoules": energy_joules, "durationSeconds": "10", "attribution": "Exclusive"},
        "frequencyPlan": {
            "name": "digits-1",
            "mode": "Plan",
            "planned": {"timeSeconds": "0.5", "energyJoules": "20"},
            "savingPercent": "6.1",
        },
        "progress": {"metric": "0.98", "gpus": [gpu], "gpuProduct": "NVIDIA A40", "maxPowerLimitWatts": 300},
    }
    return f"--patch={json.dumps({'status': status})}"


@pytest.fixture(scope="session")
def wattloop(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> ClusterCommand:
    """The `wattloop` command as an administrator of the cluster."""
    program = Path(sysconfig.get_path("scripts")) / "wattloop"
    return ClusterCommand(program, control_plane.admin_kubeconfig, tmp_path_factory.mktemp("wattloop-home"))


@pytest.fixture
def job(kubectl: ClusterCommand, namespace: str) -> str:
    """The namespace of a job with two ended recurrences, a running one, and one of an earlier job with its name."""
    kubectl.apply(JOB, namespace=namespace)
    uid = kubectl.json("get", "rtj", "digits", namespace=namespace)["metadata"]["uid"]
    shown = [(recurrence(uid, 0, 32), "2000"), (recurrence(uid, 1, 64), "1500.25"), (recurrence(uid, 2, 64), None)]
    for written, energy_joules in [*shown, (recurrence("earlier", 0, 32), "77")]:
        kubectl.apply(written, namespace=namespace)
        if energy_joules is not None:
            target = f"trec/{written['metadata']['name']}"
            kubectl(
                *("patch", target, "--subresource=status", "--type=merge", ended(energy_joules)), namespace=namespace
            )
    return namespace


def test_history_shows_the_recurrences_of_this_job(wattloop: ClusterCommand, job: str) -> None:
    rows = json.loads(wattloop("history", "digits", "--format=json", namespace=job))
    assert [(row["recurrence"], row["batch_size"], row["outcome"], row["cost_joules"]) for row in rows] == [
        (0, 32, "reached", 2000.0),
        (1, 64, "reached", 1500.25),
    ]
    assert {row["default_cost_joules"] for row in rows} == {2000.0}
    assert {(row["clocks"], row["planned_iteration_joules"], row["plan_saving_percent"]) for row in rows} == {
        ("plan", 20.0, 6.1)
    }
    (first, _) = json.loads(wattloop("history", "digits", "--format=json", "--eta=0", namespace=job))
    assert first["cost_joules"] == 3000.0


def test_plot_draws_both_plots(wattloop: ClusterCommand, job: str, tmp_path: Path) -> None:
    wattloop("plot", "digits", f"--output={tmp_path}", namespace=job)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cost.png", "tradeoff.png"]


def test_a_missing_job_or_context_is_named(wattloop: ClusterCommand, namespace: str) -> None:
    with pytest.raises(CommandError) as raised:
        wattloop("history", "letters", namespace=namespace)
    assert f"there is no RecurringTrainingJob {namespace}/letters" in raised.value.stderr
    with pytest.raises(CommandError) as raised:
        wattloop("history", "letters", "--context=elsewhere", namespace=namespace)
    assert "the kubeconfig has no context 'elsewhere'; it has: tests" in raised.value.stderr


def test_a_missing_right_is_named(
    wattloop: ClusterCommand, namespace: str, service_account_kubeconfig: Callable[[str, str], Path]
) -> None:
    other_user = wattloop.as_user(service_account_kubeconfig(namespace, "default"))
    with pytest.raises(CommandError) as raised:
        other_user("history", "digits")
    assert "cannot get resource" in raised.value.stderr
    assert f'in the namespace "{namespace}"; ask for permission' in raised.value.stderr


def test_an_unreachable_server_is_reported(wattloop: ClusterCommand, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server="http://127.0.0.1:1", authority=b"", token="none")
    with pytest.raises(CommandError) as raised:
        wattloop.as_user(kubeconfig)("history", "digits")
    assert "no response from the API server" in raised.value.stderr
    assert "read a database with --database URL" in raised.value.stderr
    assert "Traceback" not in raised.value.stderr


def test_a_missing_kubeconfig_is_reported(wattloop: ClusterCommand, tmp_path: Path) -> None:
    with pytest.raises(CommandError) as raised:
        wattloop.as_user(tmp_path / "missing")("history", "digits")
    assert (
        "name a kubeconfig in KUBECONFIG or by --kubeconfig, or read a database with --database URL"
        in raised.value.stderr
    )
