"""Templates with a value of a wrong type at each place: nothing starts, and the message names the field."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.command_line.validate import not_supported
from wattloop_operator.workloads.injection import ClusterAddresses, TemplateError
from wattloop_operator.workloads.kinds import kind_of_template
from wattloop_operator.workloads.workload_manifest import devices_of, manifest

MakeJob = Callable[..., RecurringTrainingJob]
RecurrenceOf = Callable[[RecurringTrainingJob], TrainingRecurrence]
Path = tuple[str | int, ...]
ADDRESSES = ClusterAddresses("https://reports:8080", "certificates", "/run/wattloop")
CONTAINER = {
    "name": "train",
    "image": "a",
    "env": [{"name": "DEBUG", "value": "1"}],
    "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    "resources": {"limits": {"nvidia.com/gpu": 2}},
}
POD: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}},
    "spec": {
        "containers": [CONTAINER],
        "initContainers": [{"name": "fetch", "image": "b"}],
        "volumes": [{"name": "models"}],
        "restartPolicy": "Never",
    },
}
JOB = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": POD}
JOB_SET = {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 2, "template": POD}}}]}
PYTORCH_JOB = {"pytorchReplicaSpecs": {"Worker": {"replicas": 4, "template": POD}}}
TRAIN_JOB = {
    "trainer": {"numNodes": 2, "env": CONTAINER["env"], "resourcesPerNode": CONTAINER["resources"]},
    "runtimePatches": [{"manager": "example.com/user"}],
}
RAY_JOB = {
    "rayClusterSpec": {
        "headGroupSpec": {"template": POD},
        "workerGroupSpecs": [{"replicas": 2, "numOfHosts": 1, "template": POD}],
    }
}
OTHERS = {"TrainSet": JOB_SET, "JobSet": JOB_SET, "PyTorchJob": PYTORCH_JOB, "TrainJob": TRAIN_JOB, "RayJob": RAY_JOB}
API_VERSIONS = {
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "PyTorchJob": "kubeflow.org/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "RayJob": "ray.io/v1",
}
WRONG = ["x", 5, -1, 10**400, 1.5, True, None, [], {}, ["x"], [None], [[]], {"x": "y"}, [{"name": {}}], [{"name": 5}]]


def template_of(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    if kind == "Job":
        return {"spec": spec}
    return {"apiVersion": API_VERSIONS.get(kind, "example.com/v1"), "kind": kind, "spec": spec}


def names_of(kind: str) -> dict[str, Any]:
    return {} if kind in ("Job", "TrainJob") else {"trainingContainers": ["train"]}


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*path, key))


def replaced(value: Any, path: Path, by: Any) -> Any:
    found = copy.deepcopy(value)
    parent = found
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = copy.deepcopy(by)
    return found


@pytest.mark.parametrize("kind", ["Job", *OTHERS])
def test_a_value_of_any_type_at_any_place_starts_or_is_refused_with_its_place(
    kind: str, make_job: MakeJob, recurrence_of: RecurrenceOf
) -> None:
    output = {"directory": "/models/digits"}
    recurrence = recurrence_of(make_job(output=output))
    spec = OTHERS.get(kind, JOB)
    refusals: list[str] = []
    for path in places(spec):
        for wrong in WRONG:
            try:
                template = template_of(kind, replaced(spec, path, wrong))
                job = make_job(template=template, output=output, **names_of(kind))
            except ValidationError:
                continue
            assert devices_of(job) >= 0
            kind_of_template(job.spec.template).training_containers(job.spec.template, None)
            try:
                manifest(job, recurrence, ADDRESSES)
            except TemplateError as error:
                refusals.append(str(error))
    assert len(refusals) > (40 if kind == "TrainJob" else 80)
    assert max(map(len, refusals)) < 500


@pytest.mark.parametrize(
    ("path", "wrong", "message"),
    [
        (("spec", "containers"), "train", ".spec.containers: found 'train', expected a list"),
        (("spec", "containers", 0), 5, ".spec.containers[0]: found 5, expected an object"),
        (("spec", "containers", 0, "env"), "A=B", ".spec.containers[0].env: found 'A=B', expected a list"),
        (("spec", "containers", 0, "env", 0), "A=B", ".spec.containers[0].env[0]: found 'A=B', expected an object"),
        (("spec", "containers", 0, "name"), {}, ".spec.containers[0].name: found an object, expected a string"),
        (("spec", "volumes"), 3, ".spec.volumes: found 3, expected a list"),
        (("spec", "volumes", 0, "name"), [], ".spec.volumes[0].name: found a list, expected a string"),
        (("spec", "initContainers"), "x" * 100_000, f".spec.initContainers: found '{'x' * 79}…, expected a list"),
        (("metadata",), "\x1b[2J\n", r".metadata: found '\x1b[2J\n', expected an object"),
        (("metadata", "labels"), [], ".metadata.labels: found a list, expected an object"),
    ],
)
def test_a_wrong_type_in_another_kinds_template_is_named_with_its_field(
    path: Path, wrong: object, message: str, make_job: MakeJob, recurrence_of: RecurrenceOf
) -> None:
    spec = replaced(PYTORCH_JOB, ("pytorchReplicaSpecs", "Worker", "template", *path), wrong)
    job = make_job(template=template_of("PyTorchJob", spec), **names_of("PyTorchJob"))
    with pytest.raises(TemplateError) as raised:
        manifest(job, recurrence_of(make_job()), ADDRESSES)
    assert str(raised.value) == f"spec.template.spec.pytorchReplicaSpecs.Worker.template{message}"
    assert devices_of(job) == 0
    assert not_supported(job) is not None


@pytest.mark.parametrize("field", ["parallelism", "completions"])
def test_a_number_of_pods_of_a_wrong_type_is_named(field: str, make_job: MakeJob, recurrence_of: RecurrenceOf) -> None:
    job = make_job(template=template_of("Job", JOB | {field: "many"}))
    with pytest.raises(TemplateError, match=rf"^spec\.template\.spec\.{field}: found 'many', expected a whole number$"):
        manifest(job, recurrence_of(make_job()), ADDRESSES)
    assert kind_of_template(job.spec.template).training_containers(job.spec.template, None) == ["train"]
