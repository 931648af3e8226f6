"""`wattloop convert`: what a RecurringTrainingJob gets from a cron kind, what is said of the rest, and its errors."""

import json
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from wattloop.commands.main import main
from wattloop_operator.api.checks.documents import read_documents

SOURCES = Path(__file__).parents[2] / "manifests" / "cron"
POD = {"restartPolicy": "Never", "containers": [{"name": "train", "image": "registry.example/digits:1"}]}
CRON_JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "digits"},
    "spec": {
        "schedule": "0 3 * * *",
        "timeZone": "Europe/Paris",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"template": {"spec": POD}}},
    },
}


def changed(**fields: Any) -> dict[str, Any]:
    """The CronJob with these fields of its spec."""
    return {**CRON_JOB, "spec": {**CRON_JOB["spec"], **fields}}


def with_container(**fields: Any) -> dict[str, Any]:
    """The CronJob with these fields of its container."""
    container = {**POD["containers"][0], **fields}  # type: ignore[dict-item]
    return changed(jobTemplate={"spec": {"template": {"spec": {**POD, "containers": [container]}}}})


class Converter:
    """Runs `wattloop convert` on a manifest."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def text(self, text: str, code: int = 0) -> tuple[str, str]:
        """Output and messages for a file with this text."""
        path = self.folder / "cron.yaml"
        path.write_text(text, encoding="utf-8")
        assert main(["convert", str(path)]) == code
        captured = self.capsys.readouterr()
        return captured.out, captured.err.replace(f"{path}", "FILE")

    def job(self, manifest: object) -> tuple[dict[str, Any], str]:
        """The RecurringTrainingJob of a manifest, and the messages."""
        out, messages = self.text(json.dumps(manifest))
        (document,) = read_documents("output", out)
        return document.value, messages


@pytest.fixture
def convert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Converter:
    return Converter(tmp_path, capsys)


@pytest.mark.parametrize("path", sorted(SOURCES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_result_is_valid_and_its_comments_say_what_the_messages_say(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "job.yaml"
    assert main(["convert", str(path), "--output", str(output)]) == 0
    messages = capsys.readouterr().err.splitlines()
    assert messages
    comments = output.read_text(encoding="utf-8")
    for message in messages:
        position, _, note = message.partition(": ")
        assert position.startswith(f"{path}:")
        assert f"# - {note}\n" in comments
    would_start = not any("the operator would not start this job" in message for message in messages)
    assert main(["validate", str(output)]) == (0 if would_start else 2)


def test_a_cron_job_keeps_its_schedule_policies_and_template(convert: Converter) -> None:
    job, messages = convert.job(
        changed(startingDeadlineSeconds=600, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1, suspend=False)
    )
    assert job["metadata"] == {"name": "digits"}
    spec = job["spec"]
    assert (spec["schedule"], spec["timeZone"]) == ("0 3 * * *", "Europe/Paris")
    assert (spec["concurrencyPolicy"], spec["startingDeadlineSeconds"]) == ("Forbid", 600)
    assert (spec["successfulRunsHistoryLimit"], spec["failedRunsHistoryLimit"]) == (3, 1)
    assert spec["template"] == {"spec": {"template": {"spec": POD}}}
    assert messages.count("\n") == 3, messages
    assert "the target is not known" in messages
    assert (
        "the number of epochs is not known, because no argument and no variable has it; set objective.max" in messages
    )
    assert "the batch size is not known, because no argument and no variable has it" in messages


def test_a_job_whose_target_is_not_set_is_suspended(convert: Converter) -> None:
    job, _ = convert.job(CRON_JOB)
    assert job["spec"]["suspend"] is True
    assert job["spec"]["objective"]["target"]["threshold"] == 0.9


@pytest.mark.parametrize(
    ("container", "expected", "batch_size", "epochs"),
    [
        ({"args": ["--batch-size=64"]}, ["--batch-size=$(WATTLOOP_BATCH_SIZE)"], 64, None),
        (
            {"args": ["--batch_size", "64", "--lr", "3"]},
            ["--batch_size", "$(WATTLOOP_BATCH_SIZE)", "--lr", "3"],
            64,
            None,
        ),
        (
            {"args": ["python train.py --batch-size 64 --num-epochs=5 && echo 1"]},
            ["python train.py --batch-size $(WATTLOOP_BATCH_SIZE) --num-epochs=$(WATTLOOP_MAX_EPOCHS) && echo 1"],
            64,
            5,
        ),
        ({"args": ["training.batch_size=8"]}, ["training.batch_size=$(WATTLOOP_BATCH_SIZE)"], 8, None),
        (
            {"args": ["--eval-batch-size=8", "--max-batch-size=9"]},
            ["--eval-batch-size=8", "--max-batch-size=9"],
            32,
            None,
        ),
        ({"args": ["--batch-size=8", "--batch-size=16"]}, ["--batch-size=8", "--batch-size=16"], 32, None),
        ({"args": ["--batch-size=0.5"]}, ["--batch-size=0.5"], 32, None),
    ],
)
def test_an_argument_with_the_batch_size_or_the_epochs_gets_the_choice_of_wattloop(
    convert: Converter, container: dict[str, Any], expected: list[str], batch_size: int, epochs: int | None
) -> None:
    job, _ = convert.job(with_container(**container))
    assert job["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]["args"] == expected
    assert job["spec"]["batchSize"]["default"] == batch_size
    assert job["spec"]["objective"].get("maxEpochs") == epochs


def test_an_init_container_keeps_its_arguments_because_it_gets_no_variables(convert: Converter) -> None:
    prepare = {"name": "prepare", "image": "digits", "args": ["--batch-size=64"]}
    pod = {**POD, "initContainers": [prepare]}
    job, _ = convert.job(changed(jobTemplate={"spec": {"template": {"spec": pod}}}))
    assert job["spec"]["template"]["spec"]["template"]["spec"]["initContainers"] == [prepare]
    assert job["spec"]["batchSize"]["default"] != 64


def test_a_variable_with_the_batch_size_of_a_device_gets_it(convert: Converter) -> None:
    job, _ = convert.job(with_container(env=[{"name": "PER_DEVICE_TRAIN_BATCH_SIZE", "value": "16"}]))
    (container,) = job["spec"]["template"]["spec"]["template"]["spec"]["containers"]
    assert container["env"][0]["value"] == "$(WATTLOOP_PER_DEVICE_BATCH_SIZE)"
    assert job["spec"]["batchSize"] == {"default": 16, "scope": "PerDevice", "candidates": [4, 8, 16, 32, 64]}


def test_retries_and_deletion_are_left_to_wattloop(convert: Converter) -> None:
    pod = {**POD, "restartPolicy": "OnFailure"}
    child = {"backoffLimit": 3, "ttlSecondsAfterFinished": 60, "template": {"spec": pod}}
    job, messages = convert.job(changed(jobTemplate={"spec": child}))
    assert job["spec"]["retries"] == 3
    assert job["spec"]["template"]["spec"] == {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
    assert "FILE:1:" in messages
    assert "spec.jobTemplate.spec.template.spec.restartPolicy: is Never now" in messages
    assert "spec.jobTemplate.spec.backoffLimit: is spec.retries now" in messages
    assert "spec.jobTemplate.spec.ttlSecondsAfterFinished: not carried over" in messages


def test_a_default_that_differs_is_said(convert: Converter) -> None:
    spec = {name: value for name, value in CRON_JOB["spec"].items() if name not in ("timeZone", "concurrencyPolicy")}
    _, messages = convert.job({**CRON_JOB, "spec": {**spec, "newField": 1}})
    assert "spec.timeZone: not set" in messages
    assert "spec.concurrencyPolicy: not set, which means Allow" in messages
    assert "spec.newField: not carried over: a RecurringTrainingJob has no such setting" in messages


def test_a_name_that_a_job_may_not_have_is_changed_and_said(convert: Converter) -> None:
    job, messages = convert.job({**CRON_JOB, "metadata": {"name": "v1.nightly-retraining-of-the-large-model"}})
    assert job["metadata"]["name"] == "v1-nightly-retraining-of-the-large"
    assert "metadata.name: shortened to 'v1-nightly-retraining-of-the-large'" in messages


def test_what_the_api_server_adds_is_left_out(convert: Converter) -> None:
    metadata = {
        "name": "digits",
        "uid": "1",
        "resourceVersion": "2",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "owner": "a"},
        "ownerReferences": [{"name": "x"}],
    }
    job, messages = convert.job({**CRON_JOB, "metadata": metadata, "status": {"active": []}})
    assert job["metadata"] == {"name": "digits", "annotations": {"owner": "a"}}
    assert "metadata.ownerReferences: not carried over" in messages
    assert "uid" not in messages


def test_a_default_that_hides_the_output_of_a_failure_is_left_out(convert: Converter) -> None:
    job, _ = convert.job(with_container(terminationMessagePolicy="File"))
    assert job["spec"]["template"] == {"spec": {"template": {"spec": POD}}}


def test_the_queue_of_kueue_is_that_of_the_job(convert: Converter) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "team-a", "kueue.x-k8s.io/priority-class": "low", "team": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"template": {"spec": POD}}}
    job, messages = convert.job(changed(jobTemplate=template))
    assert job["spec"]["template"]["metadata"]["labels"] == labels
    assert "would not start" not in messages


def test_a_ray_cron_job_gives_a_ray_job(convert: Converter) -> None:
    cluster = {"headGroupSpec": {"template": {"spec": {"containers": POD["containers"]}}}}
    source = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCronJob",
        "metadata": {"name": "tune"},
        "spec": {
            "schedule": "@daily",
            "jobTemplate": {"entrypoint": "python train.py --batch-size 128 --lr 3", "rayClusterSpec": cluster},
        },
    }
    job, _ = convert.job(source)
    assert job["spec"]["batchSize"]["default"] == 128
    assert job["spec"]["template"] == {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "spec": {"entrypoint": "python train.py --batch-size $(WATTLOOP_BATCH_SIZE) --lr 3", "rayClusterSpec": cluster},
    }


def test_a_kind_of_workload_that_the_operator_does_not_run_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "job.yaml"
    assert main(["convert", str(SOURCES / "volcano-cron-job.yaml"), "--output", str(output)]) == 0
    reason = "Wattloop cannot read how a Job of batch.volcano.sh/v1alpha1 ends; use a Job or a JobSet"
    assert f"the operator would not start this job: spec.template: {reason}" in capsys.readouterr().err
    assert f"# - the operator would not start this job: spec.template: {reason}" in output.read_text()
    assert main(["validate", str(output)]) == 2
    assert f"valid, but not supported: spec.template: {reason}" in capsys.readouterr().out


def test_each_object_of_a_list_and_of_several_documents_is_converted(convert: Converter) -> None:
    other = {**CRON_JOB, "metadata": {"name": "letters"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [CRON_JOB, other]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    out, messages = convert.text("\n---\n".join(json.dumps(each) for each in (listed, service, CRON_JOB)))
    names = [document.value["metadata"]["name"] for document in read_documents("output", out)]
    assert names == ["digits", "letters", "digits"]
    assert "FILE:3:1: Service is left out, because it is not a CronJob of batch" in messages


def test_standard_input_is_read() -> None:
    program = Path(sysconfig.get_path("scripts")) / "wattloop"
    ran = subprocess.run(
        [program, "convert", "-"], input=json.dumps(CRON_JOB), text=True, capture_output=True, check=True
    )
    assert "kind: RecurringTrainingJob\n" in ran.stdout
    assert ran.stderr.startswith("standard input:1:")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "FILE:1:5: found text that is not YAML"),
        ("", "FILE: found nothing to convert, expected a CronJob of batch or a RayCronJob of ray.io"),
        ("kind: Service", "FILE: found nothing to convert"),
        ("[1]", "FILE:1:1: a document without a kind is left out"),
        (
            "apiVersion: batch/v1\nkind: CronJob",
            "FILE:1:1: metadata: found no metadata, expected an object in metadata",
        ),
        (
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: 5",
            "FILE:4:7: spec: found 5, expected an object",
        ),
        (
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {jobTemplate: {}}",
            "FILE:4:7: spec.schedule: found no schedule, expected a cron schedule such as",
        ),
        (
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {schedule: '* * * * *', jobTemplate: {}}",
            "spec.jobTemplate.spec: found no spec, expected an object in spec",
        ),
        (
            json.dumps(changed(schedule="never")),
            "makes no valid RecurringTrainingJob: spec.schedule: found 'never', expected five cron fields",
        ),
        (
            json.dumps(changed(concurrencyPolicy="Sometimes")),
            "spec.concurrencyPolicy: found 'Sometimes', expected one of Allow, Forbid, Replace",
        ),
    ],
)
def test_what_cannot_be_converted_is_an_error_with_its_place(convert: Converter, text: str, message: str) -> None:
    out, messages = convert.text(text, code=2)
    assert out == ""
    assert message in messages


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "no-such-file.yaml"]) == 2
    assert "no-such-file.yaml: found no readable file (No such file or directory)" in capsys.readouterr().err
