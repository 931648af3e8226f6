"""What the kinds have in common whose spec contains pod templates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattloop_operator.api.template import Template
from wattloop_operator.workloads.injection import Injection, TemplateError, gpus, with_injection
from wattloop_operator.workloads.ownership import GroupKind
from wattloop_operator.workloads.pod_state import Pod
from wattloop_operator.workloads.workload_kind import ObservedPhase, RuntimeReference, Spec


@dataclass(frozen=True)
class PodTemplate:
    """A pod template inside a spec.

    Attributes:
        value: The template, `{metadata, spec}`. A change of it changes the spec.
        count: How many pods of it run at a time.
    """

    value: dict[str, Any]
    count: int = 1

    @property
    def containers(self) -> list[str]:
        """Names of its containers."""
        return [str(each.get("name")) for each in self.value["spec"]["containers"] if isinstance(each, dict)]

    def training_containers(self, names: Sequence[str] | None) -> list[str] | None:
        """The training containers of this template: a launcher's template has none of the workers'."""
        return None if names is None else [name for name in names if name in self.containers]


class TemplatedKind(ABC):
    """A `workload_kind.WorkloadKind` whose spec contains the templates of the pods that train."""

    between: frozenset[GroupKind] = frozenset()
    patches: tuple[str, ...] = ()
    place = "an object whose spec has containers"
    """Where the spec has pod templates, for messages."""

    @abstractmethod
    def pod_templates(self, spec: Mapping[str, Any]) -> Iterable[PodTemplate]:
        """The templates of the training pods inside a spec, of which each has a list of containers."""

    @abstractmethod
    def observe(self, body: Mapping[str, Any], pods: Sequence[Pod]) -> ObservedPhase:
        """See `WorkloadKind`."""

    @abstractmethod
    def switch_off_retries(self, spec: Spec) -> None:
        """Have a workload fail with its first pod, unless the user has chosen otherwise.

        Args:
            spec: The spec, which is changed.
        """

    def spec(self, template: Template, injection: Injection) -> Spec:
        """See `WorkloadKind`."""
        spec = spec_of(template)
        pod_templates = list(self.pod_templates(spec))
        if not pod_templates:
            kind = "" if template.workload is None else template.workload.kind
            raise TemplateError(
                f"spec.template.workload: the spec of this {kind} contains no pod template ({self.place}), so its pods "
                "cannot receive their batch size"
            )
        for each in pod_templates:
            names = each.training_containers(template.training_containers)
            each.value.update(with_injection(each.value, names, injection))
        self.switch_off_retries(spec)
        return spec

    def devices(self, template: Template) -> int:
        """See `WorkloadKind`."""
        names = template.training_containers
        pod_templates = self.pod_templates(spec_of(template))
        return sum(each.count * gpus(each.value["spec"], each.training_containers(names)) for each in pod_templates)

    def runtime(self, _template: Template) -> RuntimeReference | None:
        """See `WorkloadKind`."""
        return None

    def training_container(self, template: Template) -> str:
        """See `WorkloadKind`."""
        names = [name for each in self.pod_templates(spec_of(template)) for name in each.containers]
        return first_named(names, template.training_containers)

    def pods(self, spec: Mapping[str, Any]) -> int:
        """See `WorkloadKind`."""
        return sum(each.count for each in self.pod_templates(spec))


def first_named(containers: Sequence[str], names: Sequence[str] | None) -> str:
    """The first of some containers that trains; empty if none does.

    Args:
        containers: Names of the containers.
        names: The names of those that train; None: all of them.
    """
    return next((name for name in containers if name in (names or containers)), "")


def spec_of(template: Template) -> Spec:
    """A copy of the spec of a workload of another kind than Job; empty if the template has none."""
    return {} if template.workload is None else template.workload.spec.value


def as_object(value: object) -> dict[str, Any]:
    """A value as an object; empty if it is none. No schema of this API bounds the fields of another kind."""
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> Iterator[dict[str, Any]]:
    """The items of a list as objects; none if it is no list."""
    return map(as_object, value if isinstance(value, list) else ())


def pod_template_in(owner: Mapping[str, Any], name: str = "template") -> dict[str, Any] | None:
    """The pod template in this field of an object; None if it has no list of containers."""
    found = as_object(owner.get(name))
    return found if isinstance(as_object(found.get("spec")).get("containers"), list) else None


def replicas_of(owner: Mapping[str, Any], name: str = "replicas") -> int:
    """A number of replicas; 1 if there is none."""
    found = owner.get(name)
    return max(found, 0) if type(found) is int else 1
