"""The container that trains is named, if others are beside it in its pod; or it is said that it is not known."""

import json
from pathlib import Path
from typing import Any

import pytest

from wattloop.commands.main import main
from wattloop_operator.api.checks.documents import read_documents
from wattloop_operator.conversion.training_arguments import training_containers

GPU = {"limits": {"nvidia.com/gpu": 1}}
MONITOR = {"name": "monitor", "image": "a"}
BY_ARGUMENT = {"name": "train", "image": "a", "args": ["--batch-size=64"]}
BY_GPU = {"name": "train", "image": "a", "resources": GPU}


def job_and_messages(
    folder: Path, capsys: pytest.CaptureFixture[str], *containers: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    pod = {"restartPolicy": "Never", "containers": list(containers)}
    spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}}
    source = {"apiVersion": "batch/v1beta1", "kind": "CronJob", "metadata": {"name": "digits"}, "spec": spec}
    (folder / "cron.yaml").write_text(json.dumps(source))
    assert main(["convert", str(folder / "cron.yaml")]) == 0
    captured = capsys.readouterr()
    (document,) = read_documents("output", captured.out)
    return document.value["spec"], captured.err


@pytest.mark.parametrize("train", [BY_ARGUMENT, BY_GPU])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_container_that_trains_is_named_beside_a_helper(
    train: dict[str, Any], is_first: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    containers = [train, MONITOR] if is_first else [MONITOR, train]
    spec, messages = job_and_messages(tmp_path, capsys, *containers)
    assert spec["trainingContainers"] == ["train"]
    assert "train has the GPUs or the batch size, so it trains and its log is read, and monitor gets no" in messages


def test_the_batch_size_of_a_helper_is_not_that_of_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = {"name": "server", "image": "a", "args": ["--batch-size=8"]}
    spec, _ = job_and_messages(tmp_path, capsys, server, {**BY_ARGUMENT, "resources": GPU})
    assert spec["batchSize"]["default"] == 64
    assert spec["template"]["spec"]["template"]["spec"]["containers"][0] == server


@pytest.mark.parametrize(
    ("first", "second", "batch_size", "reason"),
    [
        ("-b 64", "--bs=32", 32, "-b of first, --bs of second give several"),
        ("--bs=64", "--bs=16", 32, "--bs of first, --bs of second give several"),
        ("--bs=64", "-b 64", 64, ""),
    ],
)
def test_containers_that_train_with_several_batch_sizes_leave_it_unknown(
    first: str, second: str, batch_size: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = {"first": f"train.py {first}", "second": f"train.py {second}"}
    containers = [{**BY_GPU, "name": name, "command": ["sh", "-c", each]} for name, each in commands.items()]
    spec, messages = job_and_messages(tmp_path, capsys, *containers)
    assert spec["batchSize"]["default"] == batch_size
    assert f"the batch size is not known, because {reason}" in messages if reason else "batch size" not in messages


def test_which_of_several_containers_trains_is_said_to_be_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, messages = job_and_messages(tmp_path, capsys, MONITOR, {"name": "main", "image": "a"})
    assert "trainingContainers" not in spec
    assert "which of monitor, main trains is not known, because none of them has GPUs" in messages
    assert "monitor, the first, gets Wattloop's variables, and its log is read; set spec.trainingContainers" in messages


def test_one_container_or_several_that_all_train_need_no_name() -> None:
    for containers in ([BY_ARGUMENT], [MONITOR], [BY_GPU, {**BY_GPU, "name": "other"}]):
        found = training_containers({"template": {"spec": {"containers": containers}}})
        assert (found.names, found.others) == (None, ())


def test_the_containers_of_each_pod_are_named_if_one_of_the_pods_has_a_helper() -> None:
    pods = [[MONITOR, BY_GPU], [{"name": "worker", "image": "a"}]]
    found = training_containers({"tasks": [{"template": {"spec": {"containers": each}}} for each in pods]})
    assert set(found.names or ()) == {"train", "worker"}
