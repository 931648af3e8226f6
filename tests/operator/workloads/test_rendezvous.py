"""The pods of an attempt find each other: their variables, and the Service that gives them names."""

from collections.abc import Callable
from typing import Any

import pytest

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.workloads.injection import ClusterAddresses
from wattloop_operator.workloads.workload_manifest import manifest, service

RecurrenceOf = Callable[[RecurringTrainingJob], TrainingRecurrence]
ADDRESSES = ClusterAddresses(report_url="https://reports:8080")


def indexed(*containers: dict[str, Any], **pod: Any) -> dict[str, Any]:
    spec = {"containers": list(containers) or [{"name": "train", "image": "train:1"}], **pod}
    return {"spec": {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": {"spec": spec}}}


def test_the_pods_of_an_indexed_job_find_the_first_one(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    proxy = {"name": "proxy", "image": "proxy:1"}
    own = {"name": "train", "image": "train:1", "env": [{"name": "PET_NNODES", "value": "1:2"}]}
    job = make_job(template=indexed(own, proxy))
    recurrence = recurrence_of(job)
    made = manifest(job, recurrence, ADDRESSES)
    name = recurrence.metadata.name
    assert made["spec"]["template"]["spec"]["subdomain"] == name
    train, other = made["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"] for each in train["env"]}
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert {key: value for key, value in variables.items() if not key.startswith("WATTLOOP_")} == {
        "MASTER_ADDR": f"{name}-0.{name}",
        "MASTER_PORT": "29500",
        "RANK": index,
        "WORLD_SIZE": "2",
        "PET_MASTER_ADDR": f"{name}-0.{name}",
        "PET_MASTER_PORT": "29500",
        "PET_NODE_RANK": index,
        "PET_NNODES": "1:2",
    }
    assert len(train["env"]) == len(variables)
    assert "env" not in other


def test_the_service_of_a_rendezvous_is_headless_and_selects_the_pods(
    make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    job = make_job(template=indexed())
    recurrence = recurrence_of(job)
    made, workload = service(job, recurrence), manifest(job, recurrence, ADDRESSES)
    assert made["metadata"] == {key: workload["metadata"][key] for key in made["metadata"]}
    assert made["metadata"]["ownerReferences"]
    selector, labels = made["spec"]["selector"], workload["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()
    assert selector == {"wattloop.dev/recurrence": recurrence.metadata.name}
    assert made["spec"]["clusterIP"] == "None"
    assert made["spec"]["publishNotReadyAddresses"]
    assert [port["port"] for port in made["spec"]["ports"]] == [29500]


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"template": {"spec": {"containers": [{"name": "train", "image": "train:1"}]}}}},
        indexed(subdomain="own"),
        indexed(hostname="own"),
    ],
    ids=["not indexed", "with a subdomain", "with a hostname"],
)
def test_other_pods_get_no_service_and_keep_their_names(
    template: dict[str, Any], make_job: Callable[..., RecurringTrainingJob], recurrence_of: RecurrenceOf
) -> None:
    job = make_job(template=template)
    assert service(job, recurrence_of(job)) is None
    pod, own = manifest(job, recurrence_of(job), ADDRESSES)["spec"]["template"]["spec"], job.spec.template.spec.value
    written = own["template"]["spec"]
    assert (pod.get("subdomain"), pod.get("hostname")) == (written.get("subdomain"), written.get("hostname"))
    assert not {"MASTER_ADDR", "RANK"} & {each["name"] for each in pod["containers"][0]["env"]}
