"""`wattloop history` and `wattloop plot` on a real API server, with only a kubeconfig."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.control_plane.commands import ClusterCommand
from support.control_plane.fixtures import Wattloop
from support.control_plane.kubeconfig import write_kubeconfig
from support.recurrence_objects import recurrence_object
from wattloop.commands.main import EXIT_FAILURE, EXIT_USAGE

pytestmark = pytest.mark.usefixtures("crds")

JOB: dict[str, Any] = {
    "apiVersion": "wattloop.dev/v1alpha1",
    "kind": "RecurringTrainingJob",
    "metadata": {"name": "digits"},
    "spec": {
        "objective": {"energyWeightPercent": 100, "target": {"metric": "accuracy", "threshold": "0.97"}},
        "batchSize": {"default": 32, "candidates": [32, 64]},
        "template": {
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}}
        },
    },
}


def recurrence(uid: str, index: int, batch_size: int) -> dict[str, Any]:
    name, spec = f"digits-{uid[:4]}-{index}", {"index": index, "slot": str(index), "batchSize": batch_size}
    weighs, target = {"energyWeightPercent": 100}, {"target": JOB["spec"]["objective"]["target"]}
    body = recurrence_object(name, jobRef={"name": "digits", "uid": uid}, **spec, **weighs, **target)
    return body | {"metadata": {"name": name}}


def ended(energy_joules: str) -> str:
    status = {
        "result": "Reached",
        "epochs": "10",
        "completionTime": "2026-03-01T00:10:00Z",
        "usage": {
            "gpuEnergyJoules": energy_joules,
            "durationSeconds": "10",
            "devices": 1,
            "gpuProduct": "NVIDIA A40",
            "maxPowerLimitWatts": 300,
            "attribution": "Exclusive",
        },
        "frequencyPlan": {"name": "digits-1", "mode": "Plan", "savingPercent": "6.1"},
        "progress": {"metric": "0.98"},
    }
    return f"--patch={json.dumps({'status': status})}"


@pytest.fixture
def job(kubectl: ClusterCommand, namespace: str) -> str:
    """The namespace of a job with two ended recurrences, a running one, and one of an earlier job with its name."""
    kubectl.apply(JOB, namespace=namespace)
    uid = kubectl.json("get", "rtj", "digits", namespace=namespace)["metadata"]["uid"]
    shown = [(recurrence(uid, 0, 32), "2000"), (recurrence(uid, 1, 64), "1500.25"), (recurrence(uid, 2, 64), None)]
    every = [*shown, (recurrence("earlier", 0, 32), "77")]
    kubectl.apply(*(written for written, _ in every), namespace=namespace)
    for written, energy_joules in every:
        if energy_joules is not None:
            target = f"trec/{written['metadata']['name']}"
            kubectl(
                *("patch", target, "--subresource=status", "--type=merge", ended(energy_joules)), namespace=namespace
            )
    return namespace


def test_history_and_plots_show_the_recurrences_of_this_job(wattloop: Wattloop, job: str, tmp_path: Path) -> None:
    code, out, _ = wattloop("history", "digits", "--format=json", f"--namespace={job}")
    rows = json.loads(out)
    assert code == 0
    assert [(row["recurrence"], row["batch_size"], row["outcome"], row["cost_joules"]) for row in rows] == [
        (0, 32, "reached", 2000.0),
        (1, 64, "reached", 1500.25),
    ]
    assert {row["default_cost_joules"] for row in rows} == {2000.0}
    assert {(row["clocks"], row["plan_saving_percent"]) for row in rows} == {("plan", 6.1)}

    assert wattloop("plot", "digits", f"--output={tmp_path}", f"--namespace={job}")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cost.png", "tradeoff.png"]


def test_a_missing_job_context_or_right_is_named(
    wattloop: Wattloop, namespace: str, service_account_kubeconfig: Callable[[str, str], Path]
) -> None:
    code, _, error = wattloop("history", "letters", f"--namespace={namespace}")
    assert code == EXIT_USAGE
    assert f"there is no RecurringTrainingJob {namespace}/letters" in error
    code, _, error = wattloop("history", "letters", "--context=elsewhere", f"--namespace={namespace}")
    assert code == EXIT_USAGE
    assert "the kubeconfig has no context 'elsewhere'; it has: tests" in error
    code, _, error = wattloop("history", "digits", kubeconfig=service_account_kubeconfig(namespace, "default"))
    assert code == EXIT_FAILURE
    assert "cannot get resource" in error
    assert f'in the namespace "{namespace}"; ask for permission' in error


def test_an_unreachable_server_or_a_missing_kubeconfig_is_reported(wattloop: Wattloop, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server="http://127.0.0.1:1", authority=b"", token="none")
    code, _, error = wattloop("history", "digits", kubeconfig=kubeconfig)
    assert code == EXIT_FAILURE
    assert "no response from the API server" in error
    assert "read a database with --database URL" in error
    code, _, error = wattloop("history", "digits", kubeconfig=tmp_path / "missing")
    assert code == EXIT_FAILURE
    assert "name a kubeconfig in KUBECONFIG or by --kubeconfig, or read a database with --database URL" in error
