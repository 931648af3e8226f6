"""The workload of a run: a batch/v1 Job or an object of another kind, preserved as the user wrote it."""

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any

import pydantic_core
from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from wattloop_operator.api.model import UNPUBLISHED_DEFAULT, ApiModel, Rule
from wattloop_operator.api.template_checks import is_job
from wattloop_planner.canonical_json import canonical_json

KUEUE_PREFIX = "kueue.x-k8s.io/"
# The labels by which Kueue puts a workload into a queue, and gives it a priority there.
QUEUE_LABEL = f"{KUEUE_PREFIX}queue-name"
PRIORITY_LABEL = f"{KUEUE_PREFIX}priority-class"


class PreservedObject:
    """A JSON object, kept as its text and parsed at each use: a parsed `[[[[` needs 45 times the memory of its text.

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
    def _validated(cls, value: object) -> "PreservedObject":
        if isinstance(value, PreservedObject):
            return value
        if not isinstance(value, Mapping):
            raise PydanticCustomError("object_type", "Input should be an object")
        return cls(value)


Labels = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)]
Annotations = Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)]


class TemplateMetadata(ApiModel):
    """The metadata that every workload of a job gets."""

    labels: Labels = Field(
        default_factory=dict,
        description="Labels of the workload and its pods. kueue.x-k8s.io/queue-name puts each workload into a queue of "
        "Kueue; labels of Kueue are those of the workload alone. Absent: none.",
    )
    annotations: Annotations = Field(default_factory=dict, description="Annotations of the workload. Absent: none.")


class Template(ApiModel):
    """The workload of a run."""

    rules = (
        Rule(
            "has(self.apiVersion) == has(self.kind)",
            "apiVersion and kind together, such as jobset.x-k8s.io/v1alpha2 and JobSet; or neither for a batch/v1 Job",
            ".kind",
        ),
    )

    api_version: str = Field(
        default="batch/v1",
        description="API version of the workload, such as jobset.x-k8s.io/v1alpha2. Absent: batch/v1.",
        min_length=1,
        max_length=317,
        pattern=r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?$",
        # A rule sees an object with its defaults, and one of the two fields alone is a mistake.
        json_schema_extra=UNPUBLISHED_DEFAULT,
    )
    kind: str = Field(
        default="Job",
        description="Kind of the workload, such as JobSet, TrainJob, PyTorchJob, RayJob, or one whose spec has pod "
        "templates. Absent: Job.",
        min_length=1,
        max_length=63,
        pattern=r"^[A-Z][A-Za-z0-9]*$",
        json_schema_extra=UNPUBLISHED_DEFAULT,
    )
    metadata: TemplateMetadata = Field(
        default_factory=TemplateMetadata, description="Labels and annotations of the workload. Absent: none."
    )
    spec: PreservedObject = Field(
        description="Spec of the workload, as documented for its kind. Of a Job, args may use $(WATTLOOP_BATCH_SIZE), "
        "and backoffLimit defaults to 0, since Wattloop retries by itself. The pods of an Indexed Job get a headless "
        "Service, MASTER_ADDR, MASTER_PORT, RANK (of the pod), WORLD_SIZE (pods) and torchrun's PET_MASTER_ADDR, "
        "PET_MASTER_PORT, PET_NNODES and PET_NODE_RANK, unless their template has a hostname or a subdomain.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )

    @property
    def is_job(self) -> bool:
        """Whether the workload is a batch/v1 Job."""
        return is_job({"apiVersion": self.api_version, "kind": self.kind})

    @property
    def queue(self) -> str:
        """The LocalQueue of Kueue that its workloads wait in; empty for none."""
        return self.metadata.labels.get(QUEUE_LABEL, "")

    @property
    def pod_labels(self) -> dict[str, str]:
        """The labels of its pods: Kueue must not take a pod of a workload for one of its own."""
        return {name: value for name, value in self.metadata.labels.items() if not name.startswith(KUEUE_PREFIX)}

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the workload as the user wrote it; a changed image, command or resource changes it.

        Example:
            >>> one, other = (Template(spec={"template": {"image": tag}}) for tag in ("digits:1", "digits:2"))
            >>> one.digest == one.digest, one.digest == other.digest
            (True, False)
        """
        # The queue changes nothing that is trained. Without defaults, so that a field that a later version adds does
        # not change the digest.
        trained = self.model_copy(update={"metadata": self.metadata.model_copy(update={"labels": self.pod_labels})})
        wire = trained.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        return hashlib.blake2b(canonical_json(wire).encode(), digest_size=16).hexdigest()
