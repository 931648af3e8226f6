"""Reads and writes objects by the official client, in a tenth of the processor time of a call of kubectl."""

from collections.abc import Callable, Mapping
from typing import Any

from kubernetes import client
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient

from support.control_plane.waiting import Object

Kind = tuple[str, str]
RECURRING_TRAINING_JOB: Kind = "wattloop.dev/v1alpha1", "RecurringTrainingJob"
TRAINING_RECURRENCE: Kind = "wattloop.dev/v1alpha1", "TrainingRecurrence"
GPU_POWER_POLICY: Kind = "wattloop.dev/v1alpha1", "GPUPowerPolicy"
JOB: Kind = "batch/v1", "Job"
POD: Kind = "v1", "Pod"
EVENT: Kind = "v1", "Event"
SERVICE_ACCOUNT: Kind = "v1", "ServiceAccount"
_NOT_FOUND = 404


def apply_object(cluster: DynamicClient, manifest: Mapping[str, Any], namespace: str) -> None:
    """Apply an object on the server's side as kubectl does: by the same field manager, and without unknown fields."""
    kind = cluster.resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
    strict = [("fieldValidation", "Strict")]
    cluster.server_side_apply(
        kind, body=dict(manifest), namespace=namespace, field_manager="kubectl", query_params=strict
    )


def get_object(cluster: DynamicClient, kind: Kind, namespace: str, name: str) -> Object:
    """An object as it is now."""
    found: Object = _resource(cluster, kind).get(name=name, namespace=namespace).to_dict()
    return found


def list_objects(cluster: DynamicClient, kind: Kind, namespace: str, label_selector: str) -> list[Object]:
    listed = _resource(cluster, kind).get(namespace=namespace, label_selector=label_selector).to_dict()
    found: list[Object] = listed["items"]
    return found


def delete_work(api_client: client.ApiClient, namespace: str) -> None:
    """Delete all objects of a namespace that an operator or a controller would work on.

    What they own follows by the garbage collector. The rest stays until the control plane ends: to delete a namespace
    takes a tenth of a second of processor time, since its controller asks for each kind of object several times.
    """
    group, version = RECURRING_TRAINING_JOB[0].split("/")
    deletions: list[Callable[[], object]] = [
        lambda: client.CustomObjectsApi(api_client).delete_collection_namespaced_custom_object(
            group, version, namespace, "recurringtrainingjobs"
        ),
        lambda: client.BatchV1Api(api_client).delete_collection_namespaced_job(
            namespace, propagation_policy="Background"
        ),
        lambda: client.CoreV1Api(api_client).delete_collection_namespaced_pod(namespace),
    ]
    for delete in deletions:
        try:
            delete()
        except ApiException as error:
            # Not every control plane has the definitions.
            if error.status != _NOT_FOUND:
                raise


def _resource(cluster: DynamicClient, kind: Kind) -> Any:
    api_version, name = kind
    return cluster.resources.get(api_version=api_version, kind=name)
