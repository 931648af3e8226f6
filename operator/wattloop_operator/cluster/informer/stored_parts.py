"""The part of an object that the operator stores: its owner cannot make the rest of it large at the operator's cost.

Users write metadata, and the specifications of Jobs and pods, up to etcd's limit of 1.5 MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattloop_operator.domain.names import JOB_LABEL, RECURRENCE_LABEL
from wattloop_operator.workloads.ownership import JOB_UID_LABEL
from wattloop_operator.workloads.pod_state import INDEX_LABEL

Body = Mapping[str, Any]

STORED_METADATA = (
    "name", "namespace", "uid", "generation", "resourceVersion", "creationTimestamp", "deletionTimestamp",
)  # fmt: skip
STORED_LABELS = (JOB_LABEL, RECURRENCE_LABEL, JOB_UID_LABEL, INDEX_LABEL)
STORED_JOB_SPEC = ("suspend", "parallelism", "completions")
STORED_POD_STATUS = ("phase", "reason", "message", "conditions", "containerStatuses", "initContainerStatuses")


def metadata_part(body: Body) -> dict[str, Any]:
    """The metadata alone."""
    return {"metadata": stored_metadata(body["metadata"])}


def own_part(body: Body) -> dict[str, Any]:
    """The part of one of Wattloop's own objects, whose schema and admission policy bound the rest."""
    return {**body, **metadata_part(body)}


def job_part(body: Body) -> dict[str, Any]:
    """The part of a batch/v1 Job."""
    spec = body.get("spec") or {}
    status = body.get("status") or {}
    return {**metadata_part(body), "spec": _part(spec, STORED_JOB_SPEC), "status": status}


def pod_part(body: Body) -> dict[str, Any]:
    """The part of a pod."""
    spec = {"nodeName": (body.get("spec") or {}).get("nodeName")}
    return {**metadata_part(body), "spec": spec, "status": _part(body.get("status") or {}, STORED_POD_STATUS)}


def stored_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, labels and owner that the operator reads.

    Example:
        >>> stored_metadata({"name": "x", "labels": {"a": "b"}, "ownerReferences": [{"uid": "u"}], "finalizers": ["c"]})
        {'name': 'x'}
    """
    labels = _part(metadata.get("labels") or {}, STORED_LABELS)
    # The API server admits one controller.
    owners = [each for each in metadata.get("ownerReferences") or () if each.get("controller")][:1]
    kept = _part(metadata, STORED_METADATA)
    return kept | ({"labels": labels} if labels else {}) | ({"ownerReferences": owners} if owners else {})


def _part(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}
