"""What the kinds have in common whose spec contains pod templates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from wattloop_operator.api.template import Template
from wattloop_operator.api.template_checks import training_containers
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

    def training_containers(self, names: Sequence[str] | None) -> list[str]:
        """Names of the training containers of this template: a launcher's template has none of the workers'.

        Args:
            names: The job's `trainingContainers`; None: the default of this template.
        """
        containers = [each for each in self.value["spec"]["containers"] if isinstance(each, dict)]
        return [str(each.get("name")) for each in training_containers(containers, names)]


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
        spec = template.spec.value
        pod_templates = list(self.pod_templates(spec))
        if not pod_templates:
            raise TemplateError(
                f"spec.template: the spec of this {template.kind} contains no pod template ({self.place}), so its pods "
                "cannot receive their batch size"
            )
        for each in pod_templates:
            names = each.training_containers(injection.training_containers)
            each.value.update(with_injection(each.value, names, injection))
        self.switch_off_retries(spec)
        return spec

    def devices(self, template: Template, names: Sequence[str] | None) -> int:
        """See `WorkloadKind`."""
        pod_templates = self.pod_templates(template.spec.value)
        return sum(each.count * gpus(each.value["spec"], each.training_containers(names)) for each in pod_templates)

    def runtime(self, _template: Template) -> RuntimeReference | None:
        """See `WorkloadKind`."""
        return None

    def training_containers(self, template: Template, names: Sequence[str] | None) -> list[str]:
        """See `WorkloadKind`."""
        found = (each.training_containers(names) for each in self.pod_templates(template.spec.value))
        return list(dict.fromkeys(chain.from_iterable(found)))

    def pods(self, spec: Mapping[str, Any]) -> int:
        """See `WorkloadKind`."""
        return sum(each.count for each in self.pod_templates(spec))


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
