"""`wattloop validate` refuses a template that the API server would refuse, and says where and what would be right."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from support.control_plane.job_manifest import job_manifest
from support.job_templates import TemplateCase, template_cases
from wattloop.commands.main import main
from wattloop_operator.api.manifests import check_text
from wattloop_operator.api.workload_checks.fields import LATER_FIELDS, fields_of
from wattloop_operator.api.workload_checks.formats import quantity
from wattloop_operator.api.workload_checks.job_types import TABLE


def problems_of(template: dict[str, Any]) -> list[str]:
    text = json.dumps(job_manifest(template=template))
    return [str(each) for each in check_text("job.yaml", text, workloads=True).problems]


@pytest.mark.parametrize("case", template_cases(), ids=lambda case: case.title[:90])
def test_a_template_is_refused_where_the_api_server_would_refuse_it(case: TemplateCase) -> None:
    problems = problems_of({"spec": case.job})
    assert any(case.says in problem for problem in problems) if case.says else not problems, problems


def test_each_problem_of_a_template_is_named_in_the_order_of_the_file() -> None:
    pod = {"containers": [{"name": "train", "image": "a", "stdin": "no"}], "hostUsers": "no", "volumes": [{}]}
    problems = problems_of({"spec": {"template": {"spec": pod}, "suspend": 1}})
    assert [re.split("[:,] (?:found|expected) ", each)[0].rpartition(" ")[2] for each in problems] == [
        "spec.template.spec.template.spec.containers[0].stdin",
        "spec.template.spec.template.spec.hostUsers",
        "spec.template.spec.template.spec.volumes[0]",
        "spec.template.spec.suspend",
    ]


def test_the_jobs_of_a_job_set_are_checked() -> None:
    job = {"parallelism": -1, "template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}
    spec = {"replicatedJobs": [{"name": "workers", "template": {"spec": job}}]}
    workload = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}
    (problem,) = problems_of(workload)
    assert "template.spec.replicatedJobs[0].template.spec.parallelism: found -1, expected at least 0" in problem


@pytest.mark.parametrize(("version", "kind"), [("kubeflow.org/v1", "PyTorchJob"), ("ray.io/v1", "RayJob")])
def test_the_pods_of_a_known_kind_are_checked(version: str, kind: str) -> None:
    pod = {"spec": {"containers": [{"name": "a", "image": "b", "resources": {"limits": {"memory": "4GB"}}}]}}
    (problem,) = problems_of({"apiVersion": version, "kind": kind, "spec": {"part": {"template": pod}}})
    assert "template.spec.part.template.spec.containers[0].resources.limits.memory: found the string '4GB'" in problem


def test_the_part_of_a_pod_that_changes_a_runtime_is_no_whole_pod() -> None:
    pods = [{"spec": {"containers": [{"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}}]
    spec = {"runtimeRef": {"name": "torch"}, "podTemplateOverrides": pods}
    workload = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}
    assert problems_of(workload) == []


def test_what_is_checked_in_part_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = {"template": {"spec": {"containers": [{"name": "train", "image": "a"}]}}}
    file = tmp_path / "job.yaml"
    for version, kind, spec, part in (
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {}, "the Jobs of its JobSet"),
        ("kubeflow.org/v1", "PyTorchJob", {}, "the pods of its PyTorchJob"),
        ("team.example/v1", "Training", pods, "the types of what containers of its Training have"),
    ):
        workload = {"apiVersion": version, "kind": kind, "spec": spec}
        file.write_text(json.dumps(job_manifest(template=workload)))
        main(["validate", str(file)])
        assert f"{file}: RecurringTrainingJob digits: only {part} were checked\n" in capsys.readouterr().err
        main(["validate", "--format", "json", str(file)])
        (checked,) = json.loads(capsys.readouterr().out)["checked_in_part"]
        assert checked == {"source": str(file), "manifest": "RecurringTrainingJob digits", "part": part}


def test_what_no_check_without_a_cluster_knows_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("a.yaml", "b.yaml")]
    for file in files:
        file.write_text(json.dumps(job_manifest()))
    assert main(["validate", *map(str, files)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("not checked without a cluster: its quotas, policies and webhooks, and whether what a templ")


@pytest.mark.parametrize(
    ("text", "is_quantity"),
    [
        ("1", True), ("1.", True), (".5", True), ("+1", True), ("-1", True), ("1e3", True), ("1E3", True),
        ("1Ki", True), ("1k", True), ("1E", True), ("1m", True), ("1K", False), ("1mi", False), ("", False),
        ("1 ", False), ("1GiB", False), ("1e", False), ("²", False), ("1e9999", False), ("Gi", False), ("1.2.3", False),
    ],
)  # fmt: skip
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str, is_quantity: bool) -> None:
    assert (quantity(text) is not None) is is_quantity


def test_the_fields_of_kubernetes_client_are_known() -> None:
    for name in re.findall(r"^(\w+)$", TABLE, re.MULTILINE):
        model = getattr(client, f"V1{name}", None)
        for field in () if model is None else model.attribute_map.values():
            assert field in fields_of(name) or field in LATER_FIELDS.get(name, ()), f"{name}.{field}"
