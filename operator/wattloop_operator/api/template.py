"""The workload of a run: a batch/v1 Job or another kind, preserved as the user wrote it."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pydantic_core
from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from wattloop.wire.environment import PIPELINE_PREFIX, PREFIX
from wattloop_operator.api.field_types import DNS_LABEL_PATTERN
from wattloop_operator.api.model import ATOMIC, SET, ApiModel, Rule, exactly_one_of
from wattloop_planner.canonical_json import canonical_json


class PreservedObject:
    """A JSON object, kept as its text and parsed at each use: a parsed `[[[[` needs 45 times the memory of its text.

    Args:
        value: The object.

    Example:
        >>> PreservedObject({"parallelism": 2}).value
        {'parallelism': 2}
    """

    __slots__ = ("text",)

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    @property
    def value(self) -> dict[str, Any]:
        """The object; each call returns another copy."""
        parsed: dict[str, Any] = pydantic_core.from_json(self.text)
        return parsed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PreservedObject) and self.value == other.value

    def __hash__(self) -> int:
        return hash(len(self.text))

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that takes an object, and gives it back in the wire form."""
        return core_schema.no_info_plain_validator_function(
            cls._validated,
            serialization=core_schema.plain_serializer_function_ser_schema(lambda preserved: preserved.value),
            json_schema_input_schema=core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()),
        )

    @classmethod
    def _validated(cls, value: object) -> PreservedObject:
        if isinstance(value, PreservedObject):
            return value
        if not isinstance(value, Mapping):
            raise PydanticCustomError("object_type", "Input should be an object")
        return cls(value)


class EnvironmentVariableSchema(ApiModel):
    """The fields of an environment variable that the API checks."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")
    rules = (
        Rule(
            f"!self.name.startsWith('{PREFIX}') || self.name.startsWith('{PIPELINE_PREFIX}')",
            "a name that does not begin with WATTLOOP_, which is reserved for variables that Wattloop sets; remove the "
            "variable or rename it (args may use $(WATTLOOP_BATCH_SIZE))",
            ".name",
        ),
    )

    name: str = Field(description="Name of the variable.", min_length=1, max_length=256)


class ContainerSchema(ApiModel):
    """The fields of a container that the API checks."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")

    name: str = Field(description="Name of the container.", min_length=1, max_length=63)
    env: tuple[EnvironmentVariableSchema, ...] = Field(
        default=(),
        description="Environment variables. Names that begin with WATTLOOP_ are reserved. Absent: none.",
        max_length=256,
        json_schema_extra=ATOMIC,
    )


class PodSpecSchema(ApiModel):
    """The fields of a pod's spec that the API checks; a dry run on the API server checks the others."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")
    rules = (
        Rule(
            "!has(self.restartPolicy) || self.restartPolicy in ['Never', 'OnFailure']",
            "Never or OnFailure, as for the pods of any Job",
            ".restartPolicy",
        ),
    )

    containers: tuple[ContainerSchema, ...] = Field(
        description="Containers of the pod, at least one.", min_length=1, max_length=16, json_schema_extra=ATOMIC
    )
    restart_policy: str | None = Field(default=None, description="Never (the default) or OnFailure.", max_length=16)


class PodTemplateSchema(ApiModel):
    """The fields of a pod template that the API checks."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")

    spec: PodSpecSchema = Field(description="Spec of the pod.")


class JobSchema(ApiModel):
    """The fields of a batch/v1 JobSpec that the API checks."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")

    template: PodTemplateSchema = Field(description="Template of the job's pods.")
    completion_mode: str | None = Field(default=None, description="NonIndexed (the default) or Indexed.", max_length=16)


@dataclass(frozen=True)
class SchemaOf:
    """Annotation of a field whose value is preserved as written, but whose JSON schema is that of a model."""

    model: type[ApiModel]

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the model's JSON schema instead of the field's own."""
        return handler(self.model.__pydantic_core_schema__)


class Workload(ApiModel):
    """A workload of a kind other than Job."""

    api_version: str = Field(
        description="API version of the workload, such as jobset.x-k8s.io/v1alpha2.",
        min_length=1,
        max_length=317,
        pattern=r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?$",
    )
    kind: str = Field(
        description="Kind of the workload, such as JobSet, TrainJob, PyTorchJob, RayJob, or one whose spec has pod "
        "templates.",
        min_length=1,
        max_length=63,
        pattern=r"^[A-Z][A-Za-z0-9]*$",
    )
    spec: PreservedObject = Field(
        description="Spec of the workload, as documented for its kind.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )


class Rendezvous(ApiModel):
    """How the pods of an indexed Job find each other."""

    port: int = Field(
        default=29500, description="Port of the first pod, at which the processes of all pods meet.", ge=1024, le=65535
    )


Labels = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)]
Annotations = Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)]
ContainerName = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL_PATTERN)]


class Template(ApiModel):
    """The workload of a run."""

    rules = (
        exactly_one_of("job (a batch/v1 JobSpec)", "workload {apiVersion, kind, spec}"),
        Rule(
            "!has(self.trainingContainers) || !has(self.job) || self.trainingContainers.all(name, "
            "self.job.template.spec.containers.exists(container, container.name == name))",
            "names of containers of job.template.spec.containers",
            ".trainingContainers",
        ),
        Rule(
            "!has(self.rendezvous) || (has(self.job) && has(self.job.completionMode) && "
            "self.job.completionMode == 'Indexed')",
            "rendezvous with a job of completionMode Indexed alone; other kinds make their own Service",
            ".rendezvous",
        ),
    )

    labels: Labels = Field(
        default_factory=dict, description="Labels to add to the workload and its pods. Absent: none."
    )
    annotations: Annotations = Field(
        default_factory=dict, description="Annotations to add to the workload. Absent: none."
    )
    training_containers: Annotated[tuple[ContainerName, ...], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="Names of the containers that train. Only they receive Wattloop's environment. Absent: all "
        "containers.",
        json_schema_extra=SET,
    )
    job: Annotated[PreservedObject, SchemaOf(JobSchema)] | None = Field(
        default=None,
        description="Spec of a batch/v1 Job. Its args may use $(WATTLOOP_BATCH_SIZE). backoffLimit defaults to 0, "
        "since Wattloop retries by itself.",
    )
    rendezvous: Rendezvous | None = Field(
        default=None,
        description="Makes a headless Service for the pods of an indexed job, and sets MASTER_ADDR, MASTER_PORT, RANK "
        "(of the pod), WORLD_SIZE (pods) and torchrun's PET_MASTER_ADDR, PET_MASTER_PORT, PET_NNODES and PET_NODE_RANK "
        "in its training containers. Absent: none.",
    )
    workload: Workload | None = Field(
        default=None,
        description="A workload of another kind, such as JobSet, TrainJob, PyTorchJob or RayJob.",
    )

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the workload as the user wrote it; a changed image, command or resource changes it.

        Example:
            >>> one, other = (Template(job={"template": {"image": tag}}) for tag in ("digits:1", "digits:2"))
            >>> one.digest == one.digest, one.digest == other.digest
            (True, False)
        """
        # Without defaults, so that a field that a later version adds does not change the digest.
        wire = self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        return hashlib.blake2b(canonical_json(wire).encode(), digest_size=16).hexdigest()
