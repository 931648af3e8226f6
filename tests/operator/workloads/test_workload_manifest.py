"""The manifest of a workload: the user's template with Wattloop's additions."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from wattloop.wire.environment import RunEnvironment
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.command_line.validate import not_supported
from wattloop_operator.workloads.injection import ClusterAddresses, TemplateError
from wattloop_operator.workloads.workload_manifest import devices_of, manifest

RecurrenceOf = Callable[[RecurringTrainingJob], TrainingRecurrence]
ADDRESSES = ClusterAddresses(report_url="https://reports:8080")
GPUS = {"limits": {"nvidia.com/gpu": 2}}


def environment(container: dict[str, Any]) -> RunEnvironment:
    return RunEnvironment.read({each["name"]: each.get("value", "") for each in container["env"]})


def containers(workload: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = workload["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.parametrize("quantity", ["9223372036854775808", "1e30", "2k", -1, "1" * 5_000, [], {}, True])
def test_a_quantity_that_is_no_number_of_gpus_is_named_and_nothing_starts(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf, quantity: object
) -> None:
    job = make_job({"name": "train", "image": "a", "resources": {"limits": {"nvidia.com/gpu": quantity}}})
    with pytest.raises(TemplateError, match=r"^container train: resources.limits.nvidia.com/gpu: found .*, expected a"):
        manifest(job, recurrence_of(job), ADDRESSES)
    assert devices_of(job) == 0


@pytest.mark.parametrize("pods", [10**6, 2**62, 10**300])
@pytest.mark.parametrize("is_job", [True, False])
def test_more_gpus_than_a_status_can_hold_are_refused(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf, pods: int, is_job: bool
) -> None:
    spec = {"parallelism": pods, "template": {"spec": {"containers": [{"name": "a", "image": "a", "resources": GPUS}]}}}
    other = {"apiVersion": "example.com/v1", "kind": "TrainSet", "spec": spec}
    job = make_job(template={"spec": spec} if is_job else other)
    with pytest.raises(TemplateError, match="GPUs in all of its pods, expected at most 1000000; reduce the number"):
        manifest(job, recurrence_of(job), ADDRESSES)
    assert devices_of(job) == 0
    assert "GPUs in all of its pods" in (not_supported(job) or "")


def test_a_job_is_named_as_its_recurrence_and_owned_by_it(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    job = make_job()
    made = manifest(job, recurrence_of(job), ADDRESSES)
    assert (made["apiVersion"], made["kind"]) == ("batch/v1", "Job")
    assert made["metadata"]["name"] == "digits-00000-1772323200-0"
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("TrainingRecurrence", "recurrence-uid", True)
    labels = {"wattloop.dev/job": "digits", "wattloop.dev/recurrence": "digits-00000-1772323200-0"}
    assert made["metadata"]["labels"] == labels
    assert made["spec"]["template"]["metadata"]["labels"] == labels


def test_the_environment_has_the_decision(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    job = make_job(parameters=[{"name": "dropout", "default": "0.1", "candidates": ["0.1"]}])
    recurrence = recurrence_of(job)
    read = environment(containers(manifest(job, recurrence, ADDRESSES))[0])
    assert read.job == "team/digits"
    assert read.recurrence == recurrence.metadata.name
    assert read.batch_size == recurrence.spec.batch_size
    assert read.max_epochs == 7
    assert (read.target.metric, read.target.threshold) == ("accuracy", 0.9)
    assert read.parameters == {"DROPOUT": "0.1"}
    assert read.report_url == "https://reports:8080/v1/namespaces/team/recurrences/digits-00000-1772323200-0"
    assert read.token_file == "/var/run/secrets/wattloop.dev/token"
    assert read.agent_socket == ""


def test_the_users_variables_follow_wattloops_unchanged(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    own = [{"name": "ARGS", "value": "--batch $(WATTLOOP_BATCH_SIZE)"}, {"name": "X", "valueFrom": {"fieldRef": {}}}]
    job = make_job({"name": "train", "image": "train:1", "env": own})
    env = containers(manifest(job, recurrence_of(job), ADDRESSES))[0]["env"]
    assert env[-2:] == own
    assert all(each["name"].startswith("WATTLOOP_") for each in env[:-2])


def test_a_dollar_sign_in_a_parameter_is_not_a_reference(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    job = make_job(parameters=[{"name": "note", "default": "$(HOME)", "candidates": ["$(HOME)"]}])
    env = containers(manifest(job, recurrence_of(job), ADDRESSES))[0]["env"]
    assert {"name": "WATTLOOP_PARAM_NOTE", "value": "$$(HOME)"} in env


def test_only_training_containers_get_the_environment(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    both = [{"name": "train", "image": "a"}, {"name": "log", "image": "b"}]
    job = make_job(template={"spec": {"template": {"spec": {"containers": both}}}}, trainingContainers=["train"])
    train, log = containers(manifest(job, recurrence_of(job), ADDRESSES))
    assert "env" in train
    assert log == both[1]


@pytest.mark.parametrize(
    ("scope", "gpus", "parallelism", "together", "each"),
    [
        ("Global", None, None, 64, 64),
        ("Global", GPUS, None, 64, 32),
        ("Global", GPUS, 4, 64, 8),
        ("Global", {"limits": {"nvidia.com/mig-1g.10gb": 1}}, 3, 63, 21),
        ("PerDevice", None, None, 64, 64),
        ("PerDevice", GPUS, 4, 512, 64),
        ("Global", {"requests": {"cpu": "4"}}, None, 64, 64),
    ],
)
def test_all_gpus_of_all_pods_share_a_batch(
    scope: str,
    gpus: dict[str, Any] | None,
    parallelism: int | None,
    together: int,
    each: int,
    make_job: Callable[..., RecurringTrainingJob],
    recurrence_of: RecurrenceOf,
) -> None:
    container = {"name": "train", "image": "a"} | ({} if gpus is None else {"resources": gpus})
    spec = {"template": {"spec": {"containers": [container]}}} | (
        {} if parallelism is None else {"parallelism": parallelism}
    )
    job = make_job(template={"spec": spec}, batchSize={"default": 64, "candidates": [64], "scope": scope})
    read = environment(containers(manifest(job, recurrence_of(job), ADDRESSES))[0])
    assert (read.batch_size, read.per_device_batch_size) == (together, each)


def test_a_token_with_wattloops_audience_is_mounted_read_only(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    job = make_job()
    pod = manifest(job, recurrence_of(job), ADDRESSES)["spec"]["template"]["spec"]
    (volume,) = pod["volumes"]
    assert volume["projected"]["sources"][0]["serviceAccountToken"]["audience"] == "wattloop.dev/report"
    (mount,) = pod["containers"][0]["volumeMounts"]
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)


def test_an_annotation_of_the_pod_carries_the_certificates(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    job = make_job()
    addresses = ClusterAddresses("https://reports", certificate_authority="-----BEGIN CERTIFICATE-----")
    template = manifest(job, recurrence_of(job), addresses)["spec"]["template"]
    annotation = "wattloop.dev/report-certificate-authority"
    assert template["metadata"]["annotations"] == {annotation: addresses.certificate_authority}
    (item,) = template["spec"]["volumes"][0]["projected"]["sources"][1]["downwardAPI"]["items"]
    assert item == {"path": "ca.crt", "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
    read = environment(template["spec"]["containers"][0])
    assert read.certificate_authority_file == "/var/run/secrets/wattloop.dev/ca.crt"


@pytest.mark.parametrize(
    ("source", "volumes", "variables"),
    [
        ("Push", ["wattloop-reporting", "wattloop-agent"], []),
        ("Logs", [], ["PYTHONUNBUFFERED"]),
        ("TerminationMessage", [], []),
        (
            "KubeflowTrainer",
            ["wattloop-reporting"],
            ["KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_TOKEN", "KUBEFLOW_TRAINER_SERVER_CA_CERT"],
        ),
    ],
)
def test_a_pod_gets_what_its_reporting_source_needs_and_no_more(
    source: str,
    volumes: list[str],
    variables: list[str],
    make_job: Callable[..., RecurringTrainingJob],
    recurrence_of: RecurrenceOf,
) -> None:
    job = make_job(reporting={"source": source})
    recurrence = recurrence_of(job)
    assert recurrence.spec.profile_power_limits is (source == "Push")
    addresses = ClusterAddresses("https://reports", "-----BEGIN CERTIFICATE-----", "/run/wattloop")
    template = manifest(job, recurrence, addresses)["spec"]["template"]
    found = {each["name"]: each["value"] for each in template["spec"]["containers"][0]["env"]}
    assert [volume["name"] for volume in template["spec"].get("volumes", ())] == volumes
    assert [name for name in found if not name.startswith("WATTLOOP_")] == variables
    assert ("annotations" in template["metadata"]) == bool("wattloop-reporting" in volumes)
    if "KUBEFLOW_TRAINER_SERVER_URL" in found:
        path = f"/v1/namespaces/team/recurrences/{recurrence.metadata.name}/trainer-status"
        assert found["KUBEFLOW_TRAINER_SERVER_URL"] == f"https://reports{path}"
        assert found["KUBEFLOW_TRAINER_SERVER_TOKEN"] == "/var/run/secrets/wattloop.dev/token"


@pytest.mark.parametrize(
    ("source", "url", "paths"),
    [
        ("Push", "https://reports", ["/dev/termination-log", "/run/own"]),
        ("Push", "", ["", ""]),
        ("KubeflowTrainer", "https://reports", ["", ""]),
        ("TerminationMessage", "https://reports", ["", ""]),
    ],
)
def test_a_training_with_the_client_knows_the_termination_message_of_its_container(
    source: str, url: str, paths: list[str], make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    own = {"name": "second", "image": "train:1", "terminationMessagePath": "/run/own"}
    pod = {"containers": [{"name": "train", "image": "train:1"}, own]}
    job = make_job(
        template={"spec": {"template": {"spec": pod}}},
        reporting={"source": source},
        trainingContainers=["train", "second"],
    )
    found = manifest(job, recurrence_of(job), ClusterAddresses(url))["spec"]["template"]["spec"]["containers"]
    assert [environment(each).termination_message_path for each in found] == paths


@pytest.mark.parametrize(
    ("source", "given", "expected"),
    [("Push", None, None), ("TerminationMessage", None, None), ("Logs", None, 5), ("Logs", 40, 40), ("Logs", 0, 0)],
)
def test_a_training_that_wattloop_ends_gets_a_short_time_for_it_unless_the_user_gives_one(
    source: str,
    given: int | None,
    expected: int | None,
    make_job: Callable[..., RecurringTrainingJob],
    recurrence_of: RecurrenceOf,
) -> None:
    pod: dict[str, Any] = {"containers": [{"name": "train", "image": "train:1"}]}
    if given is not None:
        pod["terminationGracePeriodSeconds"] = given
    job = make_job(template={"spec": {"template": {"spec": pod}}}, reporting={"source": source})
    found = manifest(job, recurrence_of(job), ClusterAddresses())["spec"]["template"]["spec"]
    assert found.get("terminationGracePeriodSeconds") == expected


def test_the_agents_socket_is_mounted_if_there_are_agents(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    job = make_job()
    addresses = ClusterAddresses(report_url="", agent_folder="/run/wattloop")
    pod = manifest(job, recurrence_of(job), addresses)["spec"]["template"]["spec"]
    (volume,) = pod["volumes"]
    assert volume["hostPath"]["path"] == "/run/wattloop"
    assert environment(pod["containers"][0]).agent_socket == "/run/wattloop/agent.sock"


@pytest.mark.parametrize(
    ("given", "limit", "policy"),
    [({}, 0, True), ({"backoffLimit": 3}, 3, False), ({"podFailurePolicy": {"rules": []}}, 0, False)],
)
def test_a_job_does_not_retry_unless_the_user_sets_it(
    given: dict[str, Any],
    limit: int,
    policy: bool,
    make_job: Callable[..., RecurringTrainingJob],
    recurrence_of: RecurrenceOf,
) -> None:
    spec = {"template": {"spec": {"containers": [{"name": "train", "image": "a"}]}}, **given}
    job = make_job(template={"spec": spec})
    made = manifest(job, recurrence_of(job), ADDRESSES)["spec"]
    assert made["backoffLimit"] == limit
    rules = made.get("podFailurePolicy", {}).get("rules", [])
    assert bool(rules) is policy


def test_the_users_restart_policy_is_retained(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    pod = {"restartPolicy": "OnFailure", "containers": [{"name": "train", "image": "a"}]}
    job = make_job(template={"spec": {"template": {"spec": pod}}})
    made = manifest(job, recurrence_of(job), ADDRESSES)["spec"]
    assert made["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert "podFailurePolicy" not in made


def test_the_template_is_not_modified(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    job = make_job()
    before = copy.deepcopy(job)
    manifest(job, recurrence_of(job), ADDRESSES)
    assert job == before


def test_a_container_may_set_the_arguments_of_the_clients_pipeline(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    own = {"name": "WATTLOOP_PIPELINE_PLANS", "value": "/plans"}
    job = make_job({"name": "train", "image": "train:1", "env": [own]})
    assert own in containers(manifest(job, recurrence_of(job), ADDRESSES))[0]["env"]


@pytest.mark.parametrize(
    ("pod", "names", "message"),
    [
        (
            {"env": [{"name": "WATTLOOP_BATCH_SIZE", "value": "1"}]},
            None,
            "found 'WATTLOOP_BATCH_SIZE', expected a name that does not begin with WATTLOOP_",
        ),
        ({}, ["main"], "trainingContainers: found 'main', expected a name of a container of the pod \\(train\\)"),
    ],
)
def test_a_template_that_conflicts_with_the_injection_is_rejected(
    pod: dict[str, Any],
    names: list[str] | None,
    message: str,
    make_job: Callable[..., RecurringTrainingJob],
    recurrence_of: RecurrenceOf,
) -> None:
    container = {"name": "train", "image": "a", **pod}
    job = make_job(container, **({} if names is None else {"trainingContainers": names}))
    with pytest.raises(TemplateError, match=message):
        manifest(job, recurrence_of(job), ADDRESSES)


def job_set(**worker: Any) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "train", "image": "a", "resources": GPUS}]}}
    replicated = {"name": "workers", "replicas": 3, "template": {"spec": {"parallelism": 2, "template": pod}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": {"replicatedJobs": [replicated | worker]},
    }


def test_every_pod_template_of_another_kind_gets_the_injection(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    job = make_job(template=job_set())
    made = manifest(job, recurrence_of(job), ADDRESSES)
    assert (made["apiVersion"], made["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    read = environment(pod["spec"]["containers"][0])
    assert (read.batch_size, read.per_device_batch_size) == (60, 5)
    assert pod["metadata"]["labels"]["wattloop.dev/recurrence"] == "digits-00000-1772323200-0"


def test_a_kind_without_pod_templates_is_refused(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    for kind, place in (("TrainSet", "an object whose spec has containers"), ("JobSet", "spec.replicatedJobs")):
        group = "jobset.x-k8s.io/v1alpha2" if kind == "JobSet" else "example.com/v1"
        workload = {"apiVersion": group, "kind": kind, "spec": {"runtimeRef": {"name": "x"}}}
        job = make_job(template=workload)
        with pytest.raises(TemplateError, match=rf"the spec of this {kind} contains no pod template \({place}"):
            manifest(job, recurrence_of(job), ADDRESSES)


def test_an_attempt_writes_into_a_folder_of_its_own_on_a_volume_of_its_container(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    for path in ("/models", "/models/digits", "/"):
        container = {"name": "train", "image": "train:1", "volumeMounts": [{"name": "models", "mountPath": path}]}
        job = make_job(container, output={"directory": "/models/digits"})
        read = environment(containers(manifest(job, recurrence_of(job), ADDRESSES))[0])
        assert read.output_directory == "/models/digits/attempts/digits-00000-1772323200-0-recurren"
        assert read.current_model == "/models/digits/current"


def test_a_model_in_an_object_store_needs_no_volume(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    job = make_job(output={"directory": "s3://models/digits"})
    read = environment(containers(manifest(job, recurrence_of(job), ADDRESSES))[0])
    assert read.output_directory == "s3://models/digits/attempts/digits-00000-1772323200-0-recurren"
    assert read.current_model == "s3://models/digits/current.json"


@pytest.mark.parametrize("path", [None, "/model", "/models/digits/current", "/data"])
def test_a_folder_of_models_on_no_volume_is_refused(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf, path: str | None
) -> None:
    mounts = [] if path is None else [{"name": "models", "mountPath": path}]
    job = make_job({"name": "train", "volumeMounts": mounts}, output={"directory": "/models/digits"})
    with pytest.raises(TemplateError, match="/models/digits is on no volume of container train"):
        manifest(job, recurrence_of(job), ADDRESSES)


@pytest.mark.parametrize(
    ("container", "reporting", "policy"),
    [
        ({}, {}, "FallbackToLogsOnError"),
        ({"terminationMessagePolicy": "File"}, {}, "File"),
        # The log would be read as what the training wrote into its termination message.
        ({}, {"source": "TerminationMessage"}, None),
    ],
)
def test_the_pods_status_keeps_the_end_of_the_log_of_a_failed_training(
    make_job: Callable[..., RecurringTrainingJob],
    recurrence_of: RecurrenceOf,
    container: dict[str, Any],
    reporting: dict[str, Any],
    policy: str | None,
) -> None:
    job = make_job({"name": "train", "image": "train:1", **container}, reporting=reporting)
    (made,) = containers(manifest(job, recurrence_of(job), ADDRESSES))
    assert made.get("terminationMessagePolicy") == policy


@pytest.mark.parametrize(
    ("given", "policy"), [({}, "FallbackToLogsOnError"), ({"terminationMessagePolicy": "File"}, "File")]
)
def test_the_pods_status_keeps_the_end_of_the_log_of_a_failed_init_container(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf, given: dict[str, str], policy: str
) -> None:
    init = {"name": "fetch", "image": "curl:1", **given}
    pod = {"containers": [{"name": "train", "image": "train:1"}], "initContainers": [init]}
    job = make_job(template={"spec": {"template": {"spec": pod}}})
    made = manifest(job, recurrence_of(job), ADDRESSES)["spec"]["template"]["spec"]["initContainers"]
    assert [each["terminationMessagePolicy"] for each in made] == [policy]
