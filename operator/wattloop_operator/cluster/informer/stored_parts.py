"""The part of an object that the operator stores, read of a list or an event of the API server.

Users write metadata, and the specifications of Jobs and pods, up to etcd's limit of 1.5 MiB; an owner cannot make them
large at the operator's cost. Parsed, a hostile object fails at Python's recursion limit or needs 45 times its size. So
lists and events are parsed with bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pydantic_core

from wattloop_operator.api.template import QUEUE_LABEL
from wattloop_operator.cluster.bounded_json import UnreadableError, parse, parse_list, upper_levels
from wattloop_operator.domain.job_identity import HISTORY_ANNOTATION
from wattloop_operator.domain.names import JOB_LABEL, RECURRENCE_LABEL
from wattloop_operator.workloads.ownership import JOB_UID_LABEL
from wattloop_operator.workloads.pod_state import GLOBAL_JOB_INDEX_LABEL, RANK_0_LABELS

Body = Mapping[str, Any]

STORED_METADATA = (
    "name", "namespace", "uid", "generation", "resourceVersion", "creationTimestamp", "deletionTimestamp",
)  # fmt: skip
STORED_LABELS = (JOB_LABEL, RECURRENCE_LABEL, JOB_UID_LABEL, QUEUE_LABEL, GLOBAL_JOB_INDEX_LABEL, *RANK_0_LABELS)
MAX_ANNOTATION_CHARACTERS = 256
STORED_JOB_SPEC = ("suspend", "parallelism", "completions", "backoffLimit")
STORED_KUEUE_STATUS = ("conditions", "admissionChecks")
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


def kueue_part(body: Body) -> dict[str, Any]:
    """The part of a Workload of Kueue, which has copies of the pods' templates."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    return {**metadata_part(body), "spec": _part(spec, ("active",)), "status": _part(status, STORED_KUEUE_STATUS)}


def stored_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, labels, annotation and owner that the operator reads.

    Example:
        >>> stored_metadata({"name": "x", "labels": {"a": "b"}, "ownerReferences": [{"uid": "u"}], "finalizers": ["c"]})
        {'name': 'x'}
    """
    labels = _part(metadata.get("labels") or {}, STORED_LABELS)
    # The API server admits one controller. The upper levels of an event have null for each owner.
    owners = [each for each in metadata.get("ownerReferences") or () if each and each.get("controller")][:1]
    kept = _part(metadata, STORED_METADATA)
    history = str((metadata.get("annotations") or {}).get(HISTORY_ANNOTATION) or "")[:MAX_ANNOTATION_CHARACTERS]
    annotations = {"annotations": {HISTORY_ANNOTATION: history}} if history else {}
    labels = {"labels": labels} if labels else {}
    return kept | labels | annotations | ({"ownerReferences": owners} if owners else {})


def _part(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


logger = logging.getLogger(__name__)

Part = Callable[[Body], Body]

# The largest template has 128 KiB, and again as much in an annotation and in managed fields each.
MAX_PARSED_BYTES = 1024 * 1024
# A TrainingRecurrence that its reports have filled has less.
MAX_KEPT_BYTES = 512 * 1024
IDENTITY = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})
PROBLEM = "problem"


def read_list(data: bytes, part: Part, receive: Callable[[Body], None]) -> Any:
    """The body of a response, a list without its items.

    Args:
        data: The body.
        part: Returns the part of an object that is kept.
        receive: Gets that part of each item of a list, as soon as it is read, or of an unreadable one the identity and
            the problem. An item at which it fails is passed over.

    Raises:
        UnreadableError: The text is not JSON, or is too large.
    """

    def receive_item(read: Callable[[], Body]) -> None:
        try:
            receive(read())
        except UnreadableError as error:
            logger.warning("an object in a list is passed over: %s", error)
        except Exception:  # the other objects are listed, and the next resync fetches this one
            logger.exception("unexpected failure at an object in a list, which is passed over")

    def kept_of_text(text: bytes) -> Body:
        try:
            return _kept(parse(text, MAX_PARSED_BYTES), part, len(text))
        except UnreadableError as error:
            return _unreadable(upper_levels(text), str(error))

    # Of a list that is parsed whole no item can be larger than what is kept.
    return parse_list(
        data,
        lambda body: receive_item(lambda: _kept(body, part, len(data))),
        lambda text: receive_item(lambda: kept_of_text(text)),
    )


def read_event(line: bytes, part: Part) -> tuple[str, Any]:
    """The type of an event of a watch, and the kept part of its object, or of an unreadable one as in `read_list`.

    The object of another event than that of a change, such as a bookmark, is returned as it is.

    Raises:
        UnreadableError: Not even the object's identity can be read.
    """
    try:
        event, problem = parse(line, MAX_PARSED_BYTES), ""
    except UnreadableError as error:
        event, problem = upper_levels(line), str(error)
    if not isinstance(event, dict):
        raise UnreadableError("it is no object")
    kind, found = str(event.get("type")), event.get("object")
    if kind not in CHANGES:
        return kind, found
    return kind, _unreadable(found, problem) if problem else _kept(found, part, len(line))


def unreadable_problem(body: Body) -> str:
    """Why only the identity of an object could be read; empty if all of it could."""
    return str(body.get(PROBLEM) or "")


def _kept(body: Any, part: Part, max_bytes: int) -> Body:
    """The kept part of an object whose JSON has at most so many bytes; if it is too large, its identity."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        raise UnreadableError("it is no object with metadata")
    kept = part(body)
    size = len(pydantic_core.to_json(kept)) if max_bytes > MAX_KEPT_BYTES else max_bytes
    if size > MAX_KEPT_BYTES:
        return _unreadable(body, f"it has {size} bytes without its annotations, more than {MAX_KEPT_BYTES}")
    return kept


def _unreadable(body: Any, problem: str) -> dict[str, Any]:
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        raise UnreadableError(problem)
    # Its job is found by its labels.
    metadata = stored_metadata(body["metadata"])
    labels = {"labels": metadata["labels"]} if "labels" in metadata else {}
    return {"metadata": _part(metadata, IDENTITY) | labels, PROBLEM: problem}
