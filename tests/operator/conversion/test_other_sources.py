"""A file that is no manifest of a cron kind gets a message that says what to do."""

from pathlib import Path

import pytest

from wattloop.commands.main import main

CRON_JOB = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec:\n"
EXPECTED_OF_HELM = (
    "a value of a template, expected the manifest that Helm or another tool makes of it (helm template CHART prints it"
)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("metadata:\n  name: {{ .Values.name }}\n", "FILE:2:9: found {{ .Values.name }}"),
        ("{{- if .Values.enabled }}\na: 1\n{{- end }}\n", "FILE:1:1: found {{- if .Values.enabled }}"),
        ('a: 1\n{{- include "labels" . | nindent 2 }}\n', "FILE:2:1: found {{- include"),
        (CRON_JOB + '  schedule: "{{ .Values.schedule }}"\n', "FILE:5:14: found {{ .Values.schedule }}"),
        (CRON_JOB + "  schedule: 0 3 * * *\n  image: a:{{ .Chart.AppVersion }}\n", "FILE:6:12: found {{ .Chart.App"),
        ("{% if a %}\nb: 1\n{% endif %}\n", "FILE:1:1: found {% if a %}"),
    ],
)
def test_a_template_of_helm_is_named_with_what_makes_a_manifest_of_it(
    text: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = converted(text, tmp_path, capsys)
    assert place in message
    assert EXPECTED_OF_HELM in message


@pytest.mark.parametrize(
    "text",
    [
        "# {{ .Values.name }}\na: \"{{inputs.parameters.name}}\"\nb: 'docker ps --format {{.Names}}'\n",
        "a: |\n  text {{ .Names }}\n",
    ],
)
def test_braces_in_a_text_or_a_comment_are_no_template(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "a value of a template" not in converted(text, tmp_path, capsys)


@pytest.mark.parametrize("schedule", ["*/5 * * * *", "* 3 * * *", "*/15 3,4 * * 1-5", "* * * * *"])
def test_a_schedule_that_begins_with_a_star_needs_quotes(
    schedule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = converted(f"{CRON_JOB}  schedule: {schedule}\n", tmp_path, capsys)
    assert "FILE:5:1" in message
    assert "found a value that begins with *, which YAML reads as an alias, expected quotes around the whole" in message


@pytest.mark.parametrize(
    ("version", "kind", "todo"),
    [
        ("argoproj.io/v1alpha1", "CronWorkflow", "put the container of the step that trains into spec.template.spec"),
        ("argoproj.io/v1alpha1", "Workflow", "put the container of the step that trains into spec.template.spec"),
        ("apps.kubedl.io/v1alpha1", "Cron", "workload.spec of its spec.template into spec.template"),
        ("training.kubedl.io/v1alpha1", "TFJob", "it has no schedule; put its apiVersion, kind and spec into"),
        ("kubeflow.org/v1", "PyTorchJob", "it has no schedule; put its apiVersion, kind and spec into"),
        ("batch/v1", "Job", "it has no schedule; put its spec into spec.template.spec of a RecurringTrainingJob"),
    ],
)
def test_another_kind_that_trains_is_named_with_where_its_parts_belong(
    version: str, kind: str, todo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = converted(f"apiVersion: {version}\nkind: {kind}\n", tmp_path, capsys)
    assert f"FILE:1:1: {kind} is left out, because it is not a CronJob of batch" in message
    assert todo in message


def test_a_kind_that_trains_nothing_gets_no_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = converted("apiVersion: v1\nkind: Service\n", tmp_path, capsys)
    assert "Service is left out, because it is not a CronJob of batch or a RayCronJob of ray.io or a Cron" in message
    assert ";" not in message


def converted(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The messages about a file with this text, which has nothing to convert."""
    file = folder / "cron.yaml"
    file.write_text(text)
    assert main(["convert", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.replace(str(file), "FILE")
