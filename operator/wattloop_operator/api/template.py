"""What a run starts: a batch/v1 Job or another workload kind, passed on as the user wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from wattloop.environment import PREFIX
from wattloop_operator.api.model import ATOMIC, SET, ApiModel, Rule


class EnvironmentVariableShape(ApiModel):
    """What the API checks of a container's environment variable."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")
    rules = (
        Rule(
            f"!self.name.startsWith('{PREFIX}')",
            "a name that does not begin with WATTLOOP_: Wattloop sets such variables itself and edits none of yours; "
            "remove it, or give it another name (args may use $(WATTLOOP_BATCH_SIZE))",
            ".name",
        ),
    )

    name: str = Field(description="Name of the variable.", min_length=1, max_length=256)


class ContainerShape(ApiModel):
    """What the API checks of a container."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")

    name: str = Field(description="Name of the container.", min_length=1, max_length=63)
    env: tuple[EnvironmentVariableShape, ...] = Field(
        default=(),
        description="Environment variables; names that begin with WATTLOOP_ are Wattloop's.",
        max_length=256,
        json_schema_extra=ATOMIC,
    )


class PodSpecShape(ApiModel):
    """What the API checks of a pod's spec; the API server checks the rest by a dry run."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")
    rules = (
        Rule(
            "!has(self.restartPolicy) || self.restartPolicy in ['Never', 'OnFailure']",
            "Never or OnFailure, as for the pods of any Job",
            ".restartPolicy",
        ),
    )

    containers: tuple[ContainerShape, ...] = Field(
        description="The containers, at least one.", min_length=1, max_length=16, json_schema_extra=ATOMIC
    )
    restart_policy: str | None = Field(
        default=None, description="Never (set where it is left out) or OnFailure.", max_length=16
    )


class PodTemplateShape(ApiModel):
    """What the API checks of a pod template."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")

    spec: PodSpecShape = Field(description="The pod's spec.")


class JobShape(ApiModel):
    """What the API checks of a batch/v1 JobSpec."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow")

    template: PodTemplateShape = Field(description="The template of the job's pods.")


@dataclass(frozen=True)
class ShapedBy:
    """Marks a field that is kept as the user wrote it, while its schema is that of a model."""

    model: type[ApiModel]

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The model's JSON schema instead of the field's own."""
        return handler(self.model.__pydantic_core_schema__)


class Workload(ApiModel):
    """A workload of another kind than Job."""

    api_version: str = Field(
        description="API version of the kind, such as jobset.x-k8s.io/v1alpha2.",
        min_length=1,
        max_length=317,
        pattern=r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?$",
    )
    kind: str = Field(
        description="The kind, such as JobSet, TrainJob or PyTorchJob.",
        min_length=1,
        max_length=63,
        pattern=r"^[A-Z][A-Za-z0-9]*$",
    )
    spec: dict[str, Any] = Field(
        description="The spec of an object of this kind, as its own documentation has it.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )


Labels = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)]
Annotations = Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)]
ContainerName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]


class Template(ApiModel):
    """What a run starts."""

    rules = (
        Rule(
            "has(self.job) != has(self.workload)",
            "exactly one of job (a batch/v1 JobSpec) and workload {apiVersion, kind, spec}",
        ),
        Rule(
            "!has(self.trainingContainers) || !has(self.job) || self.trainingContainers.all(name, "
            "self.job.template.spec.containers.exists(container, container.name == name))",
            "names of containers of job.template.spec.containers",
            ".trainingContainers",
        ),
    )

    labels: Labels = Field(default_factory=dict, description="Labels added to the workload and its pods.")
    annotations: Annotations = Field(default_factory=dict, description="Annotations added to the workload.")
    training_containers: Annotated[tuple[ContainerName, ...], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="Names of the containers that train and get Wattloop's environment; leave it out where all do.",
        json_schema_extra=SET,
    )
    job: Annotated[dict[str, Any], ShapedBy(JobShape)] | None = Field(
        default=None,
        description="The spec of a batch/v1 Job, as for any Job. Its args may use $(WATTLOOP_BATCH_SIZE). Wattloop "
        "retries by itself, so backoffLimit is 0 unless you set it.",
    )
    workload: Workload | None = Field(
        default=None, description="Another kind of workload: JobSet, TrainJob, PyTorchJob, and so on."
    )
