"""Fuzz target: templates of jobs, from what a user applies or the API server sends to the workload that is created."""

import contextlib
import json
import logging
import zlib
from typing import Any

import pydantic_core
from pydantic import ValidationError

from support.control_plane.job_manifest import job_manifest
from support.fuzzing.logs import DefectLog
from support.fuzzing.target import DefectError
from support.recurrence_objects import recurrence_object
from wattloop_operator.api.checks.documents import Document
from wattloop_operator.api.checks.schema_check import schema_problems
from wattloop_operator.api.manifests import check_bytes
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.template_checks import MAX_TEMPLATE_BYTES, MAX_TEMPLATE_DEPTH, exceeded_limit, template_bytes
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.bounded_json import MAX_DEPTH, UnreadableError, parse_response
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.stored_parts import Body, own_part, read_event, read_list, unreadable_problem
from wattloop_operator.workloads.injection import ClusterAddresses, TemplateError
from wattloop_operator.workloads.workload_manifest import devices_of, manifest

NAMESPACE = "team"
MAX_LINE_CHARACTERS = 4096
ADDRESSES = ClusterAddresses("https://wattloop.example:8443")
# What the workload adds to a template: variables, volumes, mounts and labels of each of 16 containers.
MAX_ADDED_BYTES = 16 * 16 * 1024
# Of the job around its template.
LEVELS_AROUND = 3
JSON_PER_MANIFEST = 8


class TemplateTarget:
    """What becomes of a template; an input is its text, in JSON or YAML.

    The text is checked as the template of a manifest by `wattloop validate`. As JSON of the API
    server, between two objects of other users, it passes the list and the watch of the operator into
    its cache; a job that is accepted gets its workload.

    Checks: no exception that is not documented; no error in the log; the other objects are read
    unchanged, and the job's identity is that of the API server; what is accepted is within the bounds,
    is stored as it was sent, and its workload contains it; each problem is a short printable line.
    """

    tokens = (
        b"[" * 40, b"]" * 40, b"[" * 2000, b'{"a":' * 40, b"}" * 40, b'{"a":' * 1000, b'"x": ', b"," * 9000,
        b'"' + b"x" * 1000 + b'"', b'"template": ', b'"spec": ', b'"containers": [',
        b'"initContainers": [', b'"env": [', b'"volumes": [', b'"volumeMounts": [', b'"resources": ', b'"limits": ',
        b'"nvidia.com/gpu": ', b'"name": ', b'"labels": ', b'"annotations": ', b'"metadata": null', b'"spec": []',
        b'"apiVersion": "batch/v1"', b'"kind": "Job"', b'"completionMode": "Indexed"', b'"parallelism": 1e9',
        b"null", b"true", b"-0.0", b"1e999", b"NaN", b"9" * 30, b"9" * 5000, b'"\\ud800"', b'"\\u0000"', b'"\\"', b"\\",
        b'"items": [', b'"object": ', b"&a ", b"*a", b"<<: *a", b"\xff", b"\xef\xbb\xbf", b"]}}"
    )  # fmt: skip

    def __init__(self) -> None:
        self._log = DefectLog("wattloop_operator", level=logging.ERROR)
        self._log.__enter__()
        self._recurrence = TrainingRecurrence.from_wire(recurrence_object("digits-0"))

    def seeds(self) -> list[bytes]:
        """Templates of jobs and of other kinds, and such as an earlier version did not survive."""
        plain = job_manifest()["spec"]["template"]
        container = plain["spec"]["template"]["spec"]["containers"][0]
        gpus = container | {"resources": {"limits": {"nvidia.com/gpu": 2}}, "env": [{"name": "A", "value": "1"}]}
        mounted = gpus | {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        pod = {"containers": [gpus, mounted | {"name": "other"}], "volumes": [{"name": "data", "emptyDir": {}}]}
        indexed = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": {"spec": pod}}
        job_set = {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"template": {"spec": pod}}}}]}
        templates: list[dict[str, Any]] = [
            plain,
            {"spec": {"template": {"spec": pod}}, "metadata": {"labels": {"a": "b"}}},
            {"spec": indexed},
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": job_set},
            {"apiVersion": "x.io/v1", "kind": "X", "spec": {"template": {"spec": pod}, "y": [[[]]]}},
            {"spec": {"template": {"spec": pod | {"x": [0] * 300}}}},
            {"spec": {"template": {"spec": pod | {"x": "x" * 9_000}}}},
        ]
        nested = [json.dumps(plain).replace('"Never"', "[" * levels + "]" * levels) for levels in (20, 30, 150, 2000)]
        yaml = "spec: &a\n  template:\n    spec:\n      containers: [{name: train, image: x}]\n      y: [*a]\n"
        merged = "x: &x {restartPolicy: Never}\nspec:\n  template:\n    spec:\n      <<: *x\n      containers: []\n"
        texts = [*map(json.dumps, templates), *nested, yaml, merged, "[]", "{}", "null"]
        return [text.encode() for text in texts]

    def check(self, data: bytes) -> None:
        self._log.clear()
        try:
            text = json.dumps(json.loads(data), separators=(",", ":")).encode()
        except RecursionError:
            # The API server reads deeper than this process, and stores nothing that is no JSON.
            text = b"[" * data.count(b"[") + b"]" * data.count(b"[")
        except ValueError:
            self._check_manifest(data)
            return
        # Much slower than the rest, and the subject of the target `manifests`.
        if zlib.crc32(data) % JSON_PER_MANIFEST == 0:
            self._check_manifest(data)
        self._check_stored(text)
        self._log.check()

    def close(self) -> None:
        self._log.__exit__(None, None, None)

    def _check_manifest(self, data: bytes) -> None:
        template = b"".join(b"    " + line + b"\n" for line in data.split(b"\n"))
        head = json.dumps({**job_manifest(), "spec": None}).encode().replace(b'"spec": null', b'"spec": {')
        spec = json.dumps({**job_manifest()["spec"], "template": None}).encode()[1:-1]
        spec = spec.replace(b'"template": null', b'"template": \n' + template)
        for problem in (result := check_bytes("job.yaml", head[:-1] + spec + b"}}")).problems:
            line = str(problem)
            if len(line) > MAX_LINE_CHARACTERS or not line.isprintable():
                raise DefectError(f"a line of {len(line)} characters: {line[:200]!r}")
        for each in result.valid:
            if isinstance(each, RecurringTrainingJob):
                self._check_workload(each)

    def _check_stored(self, template: bytes) -> None:
        """Check what the operator makes of a job that the API server has stored."""
        stored, victim = _stored("digits", template), _stored("victim", None)
        listed = b'{"kind":"RecurringTrainingJobList","metadata":{"resourceVersion":"9"},"items":[%s]}'
        answer = listed % b",".join((victim, stored, victim))
        event = b'{"type":"ADDED","object":%s}' % stored
        try:
            items: list[Body] = []
            read_list(answer, own_part, items.append)
            first, second, third = items
            _, of_event = read_event(event, own_part)
            plain = parse_response(answer)["items"]
        except UnreadableError as error:
            # Then nothing but its depth is wrong, and its identity is known.
            raise DefectError(f"a list or an event is unreadable for one template: {error}") from error
        if first != third or first["spec"] != json.loads(victim)["spec"]:
            raise DefectError("the object of another user is not read unchanged")
        if not second["metadata"].items() >= _metadata("digits").items() or pydantic_core.to_json(
            second
        ) != pydantic_core.to_json(of_event):
            raise DefectError(f"the list gives {second!r:.200}, the event {of_event!r:.200}")
        if plain[0] != plain[2] or plain[1]["metadata"]["name"] != "digits":
            raise DefectError("a list that is not packed has other objects")
        cache = ObjectCache()
        for each in (first, second, third):
            _put(cache, each)
        if cache.jobs.get((NAMESPACE, "victim")) is None:
            raise DefectError("the job of another user is not in the cache")
        cached = cache.jobs.get((NAMESPACE, "digits"))
        if cached is not None:
            _check_bounds(cached.value)
            # Only what the schema accepts is stored.
            kind = cached.value.kind
            if not schema_problems(Document("job"), kind, dict(second)):
                self._check_workload(cached.value)

    def _check_workload(self, job: RecurringTrainingJob) -> None:
        template = job.spec.template
        devices = devices_of(job)
        try:
            made = manifest(job, self._recurrence, ADDRESSES)
        except TemplateError as error:
            if not str(error) or len(str(error)) > MAX_LINE_CHARACTERS:
                raise DefectError(f"a refusal of {len(str(error))} characters") from error
            return
        if devices < 0:
            raise DefectError(f"a workload with {devices} GPUs")
        wire = template.to_wire()
        if len(json.dumps(made)) > len(json.dumps(wire)) + MAX_ADDED_BYTES:
            raise DefectError("a workload that is much larger than its template")
        if RecurringTrainingJob.from_wire(job.to_wire()).spec.template.to_wire() != wire:
            raise DefectError("a template that its workload has changed")


def _metadata(name: str) -> dict[str, str]:
    return {"name": name, "namespace": NAMESPACE, "uid": f"{name}-uid", "resourceVersion": "5"}


def _stored(name: str, template: bytes | None) -> bytes:
    """A job as the API server sends it."""
    made = job_manifest(name)
    made["metadata"] = _metadata(name)
    if template is None:
        return json.dumps(made, separators=(",", ":")).encode()
    made["spec"]["template"] = None
    return json.dumps(made, separators=(",", ":")).encode().replace(b'"template":null', b'"template":' + template)


def _put(cache: ObjectCache, listed: Body) -> None:
    """Store an object as the dispatcher does."""
    with contextlib.suppress(ValidationError):
        if not unreadable_problem(listed):
            cache.put_job(listed)


def _check_bounds(job: RecurringTrainingJob) -> None:
    wire = job.spec.template.to_wire()
    if exceeded_limit(wire) is not None or template_bytes(wire) > MAX_TEMPLATE_BYTES:
        raise DefectError("the cache has a template beyond the bounds")
    if _depth(wire) > MAX_TEMPLATE_DEPTH < MAX_DEPTH - LEVELS_AROUND:
        raise DefectError(f"the cache has a template of {_depth(wire)} levels")


def _depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max(map(_depth, parts), default=0)
