"""The kinds that have a module of their own: where the additions get in, and what an object says of its phase."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wattloop.wire.environment import RunEnvironment
from wattloop_operator.api.manifests import check_file
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.command_line.validate import not_supported
from wattloop_operator.domain.names import recurrence_name
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase, WorkloadState
from wattloop_operator.workloads.injection import ClusterAddresses, TemplateError
from wattloop_operator.workloads.kinds import KINDS, kind_named, kind_of_template
from wattloop_operator.workloads.workload_manifest import MAX_NAMES, check_stored, devices_of, manifest
from wattloop_operator.workloads.workload_state import state_of

MakeJob = Callable[..., RecurringTrainingJob]
RecurrenceOf = Callable[[RecurringTrainingJob], TrainingRecurrence]
EXAMPLES = Path(__file__).parents[3] / "examples" / "workloads"
ADDRESSES = ClusterAddresses("https://reports:8080", "certificates", "/run/wattloop")
NAME = "digits-00000-1772323200-0"
EARLY, LATE = "2026-03-01T10:00:05Z", "2026-03-01T10:00:09Z"
# With characters of a shell.
PROBES = '{"at": [0.5], "it": "is $(not) a word"}'
GPUS = {"limits": {"nvidia.com/gpu": 2}}
API_VERSIONS = {
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "PyTorchJob": "kubeflow.org/v1",
    "RayJob": "ray.io/v1",
}


def pod_template(name: str = "train") -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "image": "train:1", "resources": GPUS}]}}


def job_of(parallelism: int) -> dict[str, Any]:
    return {"spec": {"parallelism": parallelism, "completions": parallelism, "template": pod_template()}}


SPECS: dict[str, dict[str, Any]] = {
    "JobSet": {
        "replicatedJobs": [
            {"name": "leader", "template": job_of(1)},
            {"name": "workers", "replicas": 2, "template": job_of(2)},
        ]
    },
    "TrainJob": {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"numNodes": 5, "resourcesPerNode": GPUS, "env": [{"name": "LEVEL", "value": "debug"}]},
    },
    "PyTorchJob": {
        "pytorchReplicaSpecs": {
            "Master": {"template": pod_template("pytorch")},
            "Worker": {"replicas": 4, "template": pod_template("pytorch")},
        }
    },
    "RayJob": {
        "entrypoint": "python train.py",
        "submitterPodTemplate": pod_template("submit"),
        "rayClusterSpec": {
            "headGroupSpec": {"template": pod_template("ray-head")},
            "workerGroupSpecs": [{"replicas": 2, "numOfHosts": 2, "template": pod_template("ray-worker")}],
        },
    },
}


def template_of(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, "spec": SPECS[kind] | spec}


@pytest.fixture
def made(make_job: MakeJob, recurrence_of: RecurrenceOf) -> Callable[..., dict[str, Any]]:
    """Returns the spec of a kind's workload."""

    def make(kind: str, **spec: Any) -> dict[str, Any]:
        job = make_job(template=template_of(kind, **spec))
        spec_made: dict[str, Any] = manifest(job, recurrence_of(job), ADDRESSES)["spec"]
        return spec_made

    return make


Made = Callable[..., dict[str, Any]]


def container_of(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def environment(container: dict[str, Any]) -> RunEnvironment:
    return RunEnvironment.read({each["name"]: each.get("value", "") for each in container["env"]})


def pods_made(kind: str, spec: dict[str, Any]) -> list[dict[str, Any]]:
    if kind == "JobSet":
        return [each["template"]["spec"]["template"] for each in spec["replicatedJobs"]]
    if kind == "PyTorchJob":
        return [each["template"] for each in spec["pytorchReplicaSpecs"].values()]
    cluster = spec["rayClusterSpec"]
    return [cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"]]


@pytest.mark.parametrize("kind", ["JobSet", "PyTorchJob", "RayJob"])
def test_each_pod_that_trains_gets_environment_token_certificate_and_socket(kind: str, made: Made) -> None:
    for pod in pods_made(kind, made(kind)):
        container = container_of(pod)
        read = environment(container)
        assert (read.job, read.recurrence, read.batch_size) == ("team/digits", NAME, 60)
        assert pod["metadata"]["labels"]["wattloop.dev/recurrence"] == NAME
        assert pod["metadata"]["annotations"]["wattloop.dev/report-certificate-authority"] == "certificates"
        assert [each["name"] for each in pod["spec"]["volumes"]] == ["wattloop-reporting", "wattloop-agent"]
        assert [each["mountPath"] for each in container["volumeMounts"]] == [
            "/var/run/secrets/wattloop.dev",
            "/run/wattloop",
        ]


@pytest.mark.parametrize("kind", SPECS)
def test_the_callback_of_hugging_face_finds_the_reporting_api_in_each_kind(
    kind: str, make_job: MakeJob, recurrence_of: RecurrenceOf
) -> None:
    reporting = {"source": "KubeflowTrainer"}
    job = make_job(template=template_of(kind), reporting=reporting)
    spec = manifest(job, recurrence_of(job), ADDRESSES)["spec"]
    variables = spec["trainer"]["env"] if kind == "TrainJob" else container_of(pods_made(kind, spec)[0])["env"]
    found = {each["name"] for each in variables}
    assert {f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "TOKEN", "CA_CERT")} <= found


@pytest.mark.parametrize("kind", SPECS)
def test_the_batch_is_shared_by_the_gpus_of_all_pods(kind: str, make_job: MakeJob) -> None:
    job = make_job(template=template_of(kind))
    assert devices_of(job) == 10
    template = job.spec.template
    assert kind_of_template(template).pods(template.spec.value) == 5


def test_a_train_job_gets_the_environment_by_its_trainer_and_the_rest_by_a_patch_of_its_runtime(made: Made) -> None:
    spec = made("TrainJob")
    trainer = spec["trainer"]
    assert environment(trainer).per_device_batch_size == 6
    assert trainer["env"][-1] == {"name": "LEVEL", "value": "debug"}
    (patch,) = spec["runtimePatches"]
    assert patch["manager"] == "wattloop.dev/operator"
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]
    assert node["name"] == "node"
    assert pod["metadata"]["labels"]["wattloop.dev/recurrence"] == NAME
    assert [each["name"] for each in pod["spec"]["volumes"]] == ["wattloop-reporting", "wattloop-agent"]
    # Trainer refuses an environment here.
    assert sorted(container_of(pod)) == ["name", "volumeMounts"]
    # The same for Trainer 2.1, whose schema has this field alone.
    (override,) = spec["podTemplateOverrides"]
    assert override["targetJobs"] == [{"name": "node"}]
    assert (override["metadata"], override["spec"]) == (pod["metadata"], pod["spec"])


def test_each_pod_of_several_jobs_knows_its_place_among_all(made: Made) -> None:
    leader, workers = (container_of(pod)["env"] for pod in pods_made("JobSet", made("JobSet")))
    for variables, first, pods in ((leader, "0", "1"), (workers, "1", "2")):
        found = {each["name"]: each.get("value") for each in variables}
        assert found["WATTLOOP_PODS"] == "5"
        assert (found["WATTLOOP_FIRST_POD"], found["WATTLOOP_JOB_PODS"]) == (first, pods)
        (index,) = (each["valueFrom"] for each in variables if each["name"] == "WATTLOOP_JOB_INDEX")
        assert index["fieldRef"]["fieldPath"] == "metadata.annotations['jobset.sigs.k8s.io/job-index']"
    assert environment(made("TrainJob")["trainer"]).pods == 5


def test_a_trainer_that_drops_the_patch_is_refused(made: Made, make_job: MakeJob) -> None:
    template, spec = make_job(template=template_of("TrainJob")).spec.template, made("TrainJob")
    for dropped in ("runtimePatches", "podTemplateOverrides"):
        check_stored(template, {"spec": {name: value for name, value in spec.items() if name != dropped}})
    with pytest.raises(TemplateError, match="this cluster has neither runtimePatches nor podTemplateOverrides"):
        check_stored(template, {"kind": "TrainJob", "spec": {"trainer": spec["trainer"]}})
    check_stored(make_job().spec.template, {"kind": "Job", "spec": {}})


def test_a_users_patches_of_a_train_job_stay(made: Made) -> None:
    own = {"manager": "example.com/user", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
    assert made("TrainJob", runtimePatches=[own])["runtimePatches"][0] == own


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"trainer": {"resourcesPerNode": {}}}, "trainer.numNodes is missing: Wattloop counts the nodes and GPUs"),
        ({"trainer": {"numNodes": 1}}, "trainer.resourcesPerNode is missing"),
        ({"trainer": "x"}, r"spec\.template\.spec\.trainer: found 'x', expected an object"),
        ({"runtimePatches": [{"manager": "wattloop.dev/operator"}]}, "reserved for Wattloop; remove its patch"),
        (
            {"trainer": {"numNodes": 1, "resourcesPerNode": {}, "env": [{"name": "WATTLOOP_JOB", "value": "x"}]}},
            "container node sets WATTLOOP_JOB",
        ),
    ],
)
def test_a_train_job_that_cannot_be_started_is_refused_with_the_field(
    spec: dict[str, Any], message: str, made: Made
) -> None:
    with pytest.raises(TemplateError, match=message):
        made("TrainJob", **spec)


def test_retries_of_the_kinds_own_are_switched_off(made: Made) -> None:
    for group in made("JobSet")["replicatedJobs"]:
        job = group["template"]["spec"]
        assert job["backoffLimit"] == 0
        assert job["template"]["spec"]["restartPolicy"] == "Never"
        assert job["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["type"] == "DisruptionTarget"
    pytorch = made("PyTorchJob")
    assert [each["restartPolicy"] for each in pytorch["pytorchReplicaSpecs"].values()] == ["Never", "Never"]
    assert pytorch["runPolicy"] == {"cleanPodPolicy": "Running"}
    ray = made("RayJob")
    assert (ray["backoffLimit"], ray["shutdownAfterJobFinishes"]) == (0, True)
    assert [each["spec"]["restartPolicy"] for each in pods_made("RayJob", ray)] == ["Never", "Never"]


def test_retries_that_the_user_chose_stay(made: Made) -> None:
    job = job_of(1)
    job["spec"]["backoffLimit"] = 3
    made_job = made("JobSet", replicatedJobs=[{"name": "a", "template": job}])["replicatedJobs"][0]["template"]["spec"]
    assert (made_job["backoffLimit"], "podFailurePolicy" in made_job) == (3, False)
    ray = made("RayJob", backoffLimit=2, shutdownAfterJobFinishes=False)
    assert ray["shutdownAfterJobFinishes"] is False
    assert not any("restartPolicy" in each["spec"] for each in pods_made("RayJob", ray))


@pytest.mark.parametrize(("name", "most"), [("a" * 26, None), ("a" * 27, 26), ("9-digits", 8)])
def test_a_name_that_kuberay_would_ignore_is_refused(make_job: MakeJob, name: str, most: int | None) -> None:
    job = make_job(template=template_of("RayJob"))
    job = job.model_copy(update={"metadata": job.metadata.model_copy(update={"name": name})})
    if most is None:
        assert not_supported(job) is None
        # More than the limit of retries: attempts that never started count as none.
        assert len(recurrence_name(name, 0, "1772323200", 999)) == MAX_NAMES["ray.io", "RayJob"]
    else:
        assert f"expected at most {most} characters that begin with a letter" in (not_supported(job) or "")


def test_the_program_of_a_ray_job_gets_the_values_of_wattloops_variables(made: Made) -> None:
    """The shell that would look them up is that of the pod that submits it, which does not have them."""
    program = "python train.py --batch-size $(WATTLOOP_BATCH_SIZE) --lr $(LR) $(WATTLOOP_UNKNOWN) $WATTLOOP_SEED"
    expected = program.replace("$(WATTLOOP_BATCH_SIZE)", "60")
    assert made("RayJob", entrypoint=program)["entrypoint"] == expected


@pytest.mark.parametrize(
    "reference",
    [
        {"apiGroup": "../api/v1/namespaces/x/pods?y="},
        {"kind": "Pod"},
        {"name": ".."},
        {"name": 7},
        {"name": "a/b"},
        {"kind": ["TrainingRuntime"]},
    ],
)
def test_a_reference_to_anything_but_a_runtime_is_none(reference: dict[str, Any], make_job: MakeJob) -> None:
    job = make_job(template=template_of("TrainJob", runtimeRef={"name": "torch"} | reference))
    assert kind_of_template(job.spec.template).runtime(job.spec.template) is None


def test_the_pod_that_submits_a_ray_job_gets_no_token_and_a_running_cluster_is_refused(made: Made) -> None:
    assert made("RayJob")["submitterPodTemplate"] == pod_template("submit")
    with pytest.raises(TemplateError, match="clusterSelector runs the program in a cluster that exists already"):
        made("RayJob", clusterSelector={"ray.io/cluster": "shared"})


def body(kind: str, status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    owner = {"kind": "TrainingRecurrence", "name": "a", "uid": "recurrence-uid", "controller": True}
    metadata = {"name": "a", "uid": "u", "ownerReferences": [owner]}
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": spec, "status": status}


def condition(kind: str, reason: str = "", message: str = "") -> dict[str, Any]:
    found = {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": LATE}
    return {"conditions": [found]}


def pod(phase: str, state: dict[str, Any], last: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    container = {"name": "node", "state": state, "lastState": last or {}}
    return {
        "metadata": {"name": "p", "uid": "p-uid"},
        "spec": {"nodeName": "gpu-7"},
        "status": {"phase": phase, "containerStatuses": [container], **status},
    }


RUNNING = {"running": {"startedAt": EARLY}}
CRASHED = {"terminated": {"exitCode": 3, "startedAt": EARLY, "finishedAt": LATE}}
RUNS, FAILED = pod("Running", RUNNING), pod("Failed", CRASHED)
RESTARTED = pod("Running", RUNNING, CRASHED)
EVICTED = pod("Failed", CRASHED, conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}])


def state(found: dict[str, Any], *pods: dict[str, Any]) -> WorkloadState:
    return state_of(kind_named(found["apiVersion"], found["kind"]), found, pods, "recurrence-uid", "node")


PROGRAM_FAILED = {"jobDeploymentStatus": "Running", "jobStatus": "FAILED"}
TWICE = {"backoffLimit": 1}
ONE_NODE = {"trainer": {"numNodes": 1}}
NEVER = {"pytorchReplicaSpecs": {"Master": {"restartPolicy": "Never", "template": pod_template()}}}
ON_FAILURE = {"pytorchReplicaSpecs": {"Master": {"restartPolicy": "OnFailure", "template": pod_template()}}}


@pytest.mark.parametrize(
    ("found", "pods", "phase", "failure"),
    [
        (body("JobSet", {}), [], WorkloadPhase.PENDING, None),
        (body("JobSet", {}), [RUNS], WorkloadPhase.RUNNING, None),
        (body("JobSet", condition("Completed")), [], WorkloadPhase.SUCCEEDED, None),
        (body("JobSet", condition("Failed", "FailedJobs")), [FAILED], WorkloadPhase.FAILED, Failure.CRASHED),
        (body("JobSet", condition("Failed", "FailedJobs")), [EVICTED], WorkloadPhase.FAILED, Failure.DISRUPTED),
        (body("JobSet", condition("Failed", "FailedJobs")), [], WorkloadPhase.FAILED, Failure.DISRUPTED),
        (body("TrainJob", condition("Complete"), **ONE_NODE), [], WorkloadPhase.SUCCEEDED, None),
        (body("TrainJob", {}, **ONE_NODE), [RUNS], WorkloadPhase.RUNNING, None),
        (body("TrainJob", {}, **ONE_NODE), [RESTARTED], WorkloadPhase.FAILED, Failure.CRASHED),
        (body("TrainJob", {}, **ONE_NODE), [FAILED, RUNS], WorkloadPhase.FAILED, Failure.CRASHED),
        (body("TrainJob", {}, **ONE_NODE), [EVICTED], WorkloadPhase.FAILED, Failure.DISRUPTED),
        (body("TrainJob", condition("Failed", "DeadlineExceeded")), [FAILED], WorkloadPhase.FAILED, Failure.DEADLINE),
        (body("PyTorchJob", condition("Running"), **NEVER), [RUNS], WorkloadPhase.RUNNING, None),
        (body("PyTorchJob", condition("Running"), **NEVER), [EVICTED], WorkloadPhase.FAILED, Failure.DISRUPTED),
        (body("PyTorchJob", condition("Running"), **ON_FAILURE), [EVICTED, RUNS], WorkloadPhase.RUNNING, None),
        (body("PyTorchJob", condition("Succeeded"), **NEVER), [], WorkloadPhase.SUCCEEDED, None),
        (
            body("PyTorchJob", condition("Failed", "X", "it was active longer than specified deadline"), **NEVER),
            [],
            WorkloadPhase.FAILED,
            Failure.DEADLINE,
        ),
        (body("RayJob", {"jobDeploymentStatus": "Initializing"}), [RUNS], WorkloadPhase.PENDING, None),
        (body("RayJob", {"jobDeploymentStatus": "Running"}), [RUNS], WorkloadPhase.RUNNING, None),
        (body("RayJob", {"jobDeploymentStatus": "Running"}), [EVICTED], WorkloadPhase.FAILED, Failure.DISRUPTED),
        (body("RayJob", {"jobDeploymentStatus": "Running"}, **TWICE), [EVICTED], WorkloadPhase.RUNNING, None),
        (body("RayJob", PROGRAM_FAILED), [RUNS], WorkloadPhase.FAILED, Failure.CRASHED),
        (body("RayJob", PROGRAM_FAILED, **TWICE), [RUNS], WorkloadPhase.RUNNING, None),
        (
            body("RayJob", {"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}),
            [RUNS],
            WorkloadPhase.FAILED,
            Failure.DISRUPTED,
        ),
        (
            body("RayJob", {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}),
            [],
            WorkloadPhase.SUCCEEDED,
            None,
        ),
        (
            body("RayJob", {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed"}),
            [],
            WorkloadPhase.FAILED,
            Failure.CRASHED,
        ),
        (
            body("RayJob", {"jobDeploymentStatus": "Failed", "reason": "SubmissionFailed"}),
            [RUNS],
            WorkloadPhase.FAILED,
            Failure.DISRUPTED,
        ),
        (
            body("RayJob", {"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}),
            [],
            WorkloadPhase.FAILED,
            Failure.DEADLINE,
        ),
    ],
)
def test_an_object_and_its_pods_give_the_phase_and_the_failure(
    found: dict[str, Any], pods: list[dict[str, Any]], phase: WorkloadPhase, failure: Failure | None
) -> None:
    seen = state(found, *pods)
    assert (seen.phase, seen.failure, seen.owned, seen.suspended) == (phase, failure, True, False)


@pytest.mark.parametrize(
    ("kind", "spec", "status"),
    [
        ("Job", {"suspend": True}, {}),
        ("Job", {"suspend": True}, condition("Suspended")),
        ("JobSet", {"suspend": True}, {}),
        ("JobSet", {"suspend": True}, condition("Suspended")),
        ("TrainJob", {"suspend": True}, condition("Suspended")),
        ("PyTorchJob", {"runPolicy": {"suspend": True}}, condition("Suspended")),
        ("RayJob", {"suspend": True}, {"jobDeploymentStatus": "Suspended"}),
    ],
)
def test_a_suspended_workload_neither_runs_nor_has_failed(
    kind: str, spec: dict[str, Any], status: dict[str, Any]
) -> None:
    for pods in ([], [pod("Failed", CRASHED, reason="Terminated")], *([[RUNS]] if status else [])):
        seen = state(body(kind, status, **spec), *pods)
        assert (seen.phase, seen.suspended, seen.failure) == (WorkloadPhase.PENDING, True, None)
        assert seen.message == f"its {kind} is suspended (spec.suspend)"


def test_a_failed_train_job_may_run_again_until_it_is_deleted() -> None:
    failed = state(body("TrainJob", condition("Failed", "JobsFailed"), **ONE_NODE), FAILED)
    assert failed.must_be_ended
    assert not state(body("TrainJob", condition("Complete"), **ONE_NODE)).must_be_ended
    assert not state(body("JobSet", condition("Failed")), FAILED).must_be_ended


def ray_pod(node_type: str, found: dict[str, Any]) -> dict[str, Any]:
    return found | {"metadata": {"name": "p", "uid": "p-uid", "labels": {"ray.io/node-type": node_type}}}


def test_a_worker_that_rays_autoscaler_ends_neither_ends_nor_explains_an_attempt() -> None:
    scaled = {"rayClusterSpec": {"enableInTreeAutoscaling": True}}
    running = body("RayJob", {"jobDeploymentStatus": "Running"}, **scaled)
    head, idle = ray_pod("head", RUNS), ray_pod("worker", FAILED)
    idle["metadata"]["deletionTimestamp"] = LATE
    assert state(running, head, idle).phase is WorkloadPhase.RUNNING
    assert state(body("RayJob", PROGRAM_FAILED, **scaled), head, idle).failure is Failure.CRASHED
    assert state(running, ray_pod("head", FAILED), idle).failure is Failure.CRASHED
    assert state(running, head, ray_pod("worker", EVICTED)).failure is Failure.DISRUPTED
    fixed = body("RayJob", {"jobDeploymentStatus": "Running"})
    assert state(fixed, head, idle).failure is Failure.DISRUPTED


PREEMPTED = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": LATE}
DELETED = pod("Failed", CRASHED) | {"metadata": {"name": "p", "deletionTimestamp": LATE}}


@pytest.mark.parametrize(
    ("seconds", "pods", "more", "failure"),
    [
        (4, [], {}, Failure.DEADLINE),
        (4, [DELETED], {}, Failure.DEADLINE),
        (4, [FAILED], {}, Failure.CRASHED),
        (4, [pod("Failed", CRASHED, conditions=[PREEMPTED])], {}, Failure.DISRUPTED),
        (4, [], {"restarts": 1}, Failure.DISRUPTED),
        (4, [], {"replicatedJobsStatus": [{"name": "a", "succeeded": 1}]}, Failure.DISRUPTED),
        (4, [], {"replicatedJobsStatus": [{"name": "a", "succeeded": 0}]}, Failure.DEADLINE),
        (5, [], {}, Failure.DISRUPTED),
        (None, [], {}, Failure.DISRUPTED),
    ],
)
def test_a_job_set_whose_pods_show_no_cause_failed_at_the_deadline_of_a_job(
    seconds: int | None, pods: list[dict[str, Any]], more: dict[str, Any], failure: Failure
) -> None:
    job = job_of(1)
    job["spec"]["activeDeadlineSeconds"] = seconds
    found = body("JobSet", condition("Failed", "FailedJobs") | more, replicatedJobs=[{"name": "a", "template": job}])
    found["metadata"]["creationTimestamp"] = EARLY
    assert state(found, *pods).failure is failure


@pytest.mark.parametrize("kind", API_VERSIONS)
def test_every_kind_is_known_in_later_versions_of_its_group(kind: str) -> None:
    group = API_VERSIONS[kind].partition("/")[0]
    assert kind_named(f"{group}/v9", kind) is KINDS[group, kind]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_kind_has_a_manifest_that_starts_as_it_stands(path: Path, recurrence_of: RecurrenceOf) -> None:
    checked = check_file(str(path))
    assert not checked.problems
    (job,) = checked.valid
    assert isinstance(job, RecurringTrainingJob)
    metadata = job.metadata.model_copy(update={"namespace": "team", "uid": "job-uid"})
    job = job.model_copy(update={"metadata": metadata})
    kind = kind_of_template(job.spec.template)
    assert kind in KINDS.values()
    made = manifest(job, recurrence_of(job), ADDRESSES)
    assert kind.training_containers(job.spec.template, job.spec.training_containers)
    assert NAME.replace("digits", job.metadata.name) == made["metadata"]["name"]


def test_every_kind_has_a_manifest() -> None:
    assert {f"{kind.lower()}.yaml" for kind in API_VERSIONS} == {
        path.name.replace("-", "") for path in EXAMPLES.glob("*.yaml")
    }
