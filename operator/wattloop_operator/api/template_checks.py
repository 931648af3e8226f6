"""Bounds and types of a template, of which the schema checks little: most of it is preserved as the user wrote it.

The chart's admission policy, the operator and `wattloop validate` apply the same bounds. The types are those of what
Wattloop reads and changes in a pod template; GPUs are whole numbers, as Kubernetes has them of extended resources.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattloop.printable import printable
from wattloop.wire.environment import PIPELINE_PREFIX, PREFIX
from wattloop.wire.message_fields import shown

MAX_TEMPLATE_BYTES = 128 * 1024
# Levels of lists and objects, the template's own included. A JobSet's pod has about 20.
MAX_TEMPLATE_DEPTH = 32
# The policy counts commas, those in strings included: its time grows with the square of the values.
MAX_TEMPLATE_COMMAS = 8192
# Of all RecurringTrainingJobs of a namespace together.
MAX_NAMESPACE_TEMPLATE_BYTES = 8 * 1024 * 1024
REMEDY = "move data and scripts into the image, a ConfigMap or a volume"
TOO_LARGE = f"at most {MAX_TEMPLATE_BYTES} bytes of JSON; {REMEDY}"
TOO_MANY = f"at most {MAX_TEMPLATE_COMMAS} commas; {REMEDY}"
TOO_DEEP = f"at most {MAX_TEMPLATE_DEPTH} levels of lists and objects; remove what no pod template has"
NAMESPACE_FULL = (
    f"at most {MAX_NAMESPACE_TEMPLATE_BYTES} bytes in all RecurringTrainingJobs of a namespace; {REMEDY}, delete jobs "
    "that are no longer needed, or use a further namespace"
)
NAMED = {"name": str}
VARIABLE = {"name": str, "value": str}
CONTAINER = {"name": str, "command": [str], "args": [str], "env": [VARIABLE], "volumeMounts": [{"mountPath": str}]}
# A mapping names the fields of an object that are checked, a list has the form of its items.
POD_TEMPLATE: Mapping[str, Any] = {
    "metadata": {"labels": {}, "annotations": {}},
    "spec": {"containers": [CONTAINER], "initContainers": [{}], "volumes": [NAMED]},
}
JOB: Mapping[str, Any] = {"parallelism": int, "completions": int, "completionMode": str}
EXPECTED_TYPES = {str: "a string", int: "a whole number"}
GPU_RESOURCE = re.compile(r"^(nvidia|amd)\.com/(gpu|mig-.+)(\.shared)?$")
NUMBER = re.compile(r"[0-9]{1,4}")
MAX_GPUS_OF_CONTAINER = 1024
EXPECTED_GPUS = f"a whole number of GPUs from 0 to {MAX_GPUS_OF_CONTAINER}, without a suffix"

Path = tuple[str | int, ...]
SPEC: Path = ("template", "spec")
TRAINING_CONTAINERS: Path = ("trainingContainers",)
RESERVED_VARIABLE = (
    "a name that does not begin with WATTLOOP_, which is reserved for variables that Wattloop sets; remove the "
    "variable or rename it (args may use $(WATTLOOP_BATCH_SIZE))"
)


@dataclass(frozen=True)
class ExceededLimit:
    """A bound that a template exceeds.

    Attributes:
        found: What was found.
        expected: What is accepted, with a remedy.
    """

    found: str
    expected: str

    def __str__(self) -> str:
        return f"spec.template: found {self.found}, expected {self.expected}"


def template_bytes(template: Any) -> int:
    """The size of a template that counts.

    Example:
        >>> template_bytes({"spec": {"a": [1, 2]}})
        21
    """
    return len(_text(template))


def exceeded_limit(template: Any) -> ExceededLimit | None:
    """The bound that a template of JSON types exceeds; None if it exceeds none.

    Example:
        >>> exceeded_limit({"spec": {"x": "," * 9000}}).found
        '9000 commas'
    """
    text = _text(template)
    if len(text) > MAX_TEMPLATE_BYTES:
        return ExceededLimit(f"{len(text)} bytes", TOO_LARGE)
    if text.count(b",") > MAX_TEMPLATE_COMMAS:
        return ExceededLimit(f"{text.count(b',')} commas", TOO_MANY)
    return ExceededLimit("more levels", TOO_DEEP) if _is_deeper(template, MAX_TEMPLATE_DEPTH) else None


def full_namespace(others_bytes: int, own_bytes: int) -> ExceededLimit | None:
    """Why a template has no room in its namespace; None if it has."""
    total = others_bytes + own_bytes
    if total <= MAX_NAMESPACE_TEMPLATE_BYTES:
        return None
    return ExceededLimit(f"{total} bytes together with the templates of its namespace", NAMESPACE_FULL)


@dataclass(frozen=True)
class WrongValue:
    """A value that is not what Kubernetes has at its place.

    Attributes:
        path: The keys to the value, from the job's spec.
        value: The value.
        expected: What is expected, as text.
    """

    path: Path
    value: object
    expected: str

    def __str__(self) -> str:
        place = "".join(f"[{step}]" if isinstance(step, int) else printable(f".{step}", 80) for step in self.path)
        return f"spec{place}: found {shown(self.value)}, expected {self.expected}"


def is_job(template: Mapping[str, Any]) -> bool:
    """Whether the workload of a template is a Job.

    Example:
        >>> is_job({}), is_job({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"})
        (True, False)
    """
    api_version, kind = template.get("apiVersion") or "batch/v1", template.get("kind") or "Job"
    return (str(api_version).rpartition("/")[0], kind) == ("batch", "Job")


def wrong_type(template: Mapping[str, Any]) -> WrongValue | None:
    """The first value of a template of JSON types, or of a pod template in it, that has a wrong type; None if none has.

    Example:
        >>> pod = {"spec": {"containers": [{"name": "train", "env": "DEBUG=1"}]}}
        >>> str(wrong_type({"spec": {"template": pod}}))
        "spec.template.spec.template.spec.containers[0].env: found 'DEBUG=1', expected a list"
    """
    spec = template["spec"]
    forms: list[tuple[Path, Any, Any]] = [((*SPEC, *path), pod, POD_TEMPLATE) for path, pod in pod_templates(spec)]
    if is_job(template):
        if ("template",) not in dict(pod_templates(spec)):
            if "containers" in spec:
                return WrongValue(
                    (*SPEC, "containers"), spec["containers"], "template.spec.containers, as a Job has it"
                )
            return WrongValue((*SPEC, "template"), spec.get("template"), "an object whose spec has containers")
        forms.insert(0, (SPEC, spec, JOB))
    return next((wrong for path, value, form in forms for wrong in _wrong(path, value, form)), None)


def wrong_job(template: Mapping[str, Any], names: Sequence[str] | None) -> WrongValue | None:
    """The first value of a Job without a `wrong_type` that Wattloop cannot start, or that misses a training container.

    Args:
        template: The template.
        names: The job's `trainingContainers`; None if it has none.

    Example:
        >>> pod = {"spec": {"containers": [{"name": "train"}], "restartPolicy": "Always"}}
        >>> str(wrong_job({"spec": {"template": pod}}, None)).partition(": ")[2]
        "found 'Always', expected Never or OnFailure, as for the pods of any Job"
    """
    return next(_wrong_in_job(template["spec"]["template"]["spec"], names), None) if is_job(template) else None


def _wrong_in_job(pod: Mapping[str, Any], names: Sequence[str] | None) -> Iterator[WrongValue]:
    place: Path = (*SPEC, "template", "spec")
    containers = pod["containers"]
    if not containers:
        yield WrongValue((*place, "containers"), containers, "a list of at least one container")
    for index, container in enumerate(containers):
        if not container.get("name"):
            yield WrongValue((*place, "containers", index, "name"), container.get("name"), "a name of the container")
        for number, variable in enumerate(container.get("env") or ()):
            name = str(variable.get("name", ""))
            if name.startswith(PREFIX) and not name.startswith(PIPELINE_PREFIX):
                where = (*place, "containers", index, "env", number, "name")
                yield WrongValue(where, variable["name"], RESERVED_VARIABLE)
    policy, present = pod.get("restartPolicy"), [each.get("name") for each in containers]
    if policy is not None and policy not in ("Never", "OnFailure"):
        yield WrongValue((*place, "restartPolicy"), policy, "Never or OnFailure, as for the pods of any Job")
    for name in names or ():
        if name not in present:
            yield WrongValue(TRAINING_CONTAINERS, name, f"a name of a container of the pod ({', '.join(present)})")


def training_containers(
    containers: Sequence[dict[str, Any]], names: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """The containers of a pod that train.

    Args:
        containers: All of its containers.
        names: The job's `trainingContainers`; None: those with GPUs, or else the first.

    Example:
        >>> gpu = {"limits": {"nvidia.com/gpu": 1}}
        >>> training_containers([{"name": "proxy"}, {"name": "train", "resources": gpu}])[0]["name"]
        'train'
    """
    if names is not None:
        return [each for each in containers if each.get("name") in names]
    return [each for each in containers if requested_gpus(each.get("resources"))] or list(containers[:1])


def chosen_containers(template: Mapping[str, Any]) -> str:
    """Which containers of a template without `trainingContainers` train, where a pod has several; empty otherwise.

    Example:
        >>> pod = {"spec": {"containers": [{"name": "net"}, {"name": "log"}]}}
        >>> chosen_containers({"spec": {"template": pod}})
        'of the containers net and log, net trains: the first, as none has GPUs; spec.trainingContainers names others'
    """
    for _, pod in pod_templates(template["spec"]):
        containers = pod["spec"]["containers"]
        if len(containers) > 1:
            chosen = training_containers(containers)
            every, those = _names(containers), _names(chosen)
            if len(chosen) == len(containers):
                return f"the containers {every} train, as each has GPUs; spec.trainingContainers names those that train"
            why = "with GPUs" if requested_gpus(chosen[0].get("resources")) else "the first, as none has GPUs"
            verb = "trains" if len(chosen) == 1 else "train"
            return f"of the containers {every}, {those} {verb}: {why}; spec.trainingContainers names others"
    return ""


def _names(containers: Sequence[Mapping[str, Any]]) -> str:
    *others, last = (str(each.get("name")) for each in containers)
    return f"{', '.join(others)} and {last}" if others else last


def wrong_value(path: Path, value: Any, form: Any) -> WrongValue | None:
    """The first part of a value of JSON types that has a wrong type; None if none has.

    Args:
        path: The keys to the value, from the job's spec.
        value: The value.
        form: What is checked: a mapping names the fields of an object, a list has the form of its items.
    """
    return next(_wrong(path, value, form), None)


def wrong_gpu_request(template: Any) -> WrongValue | None:
    """The first request of a template of JSON types that is not a number of GPUs; None if there is none.

    Example:
        >>> wrong_gpu_request({"spec": [{"resources": {"limits": {"nvidia.com/gpu": "1e30"}}}]}).path
        ('template', 'spec', 0, 'resources', 'limits', 'nvidia.com/gpu')
    """
    waiting: list[tuple[Path, Any]] = [(("template",), template)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(((*path, index), each) for index, each in enumerate(value))
        elif isinstance(value, Mapping):
            waiting.extend(((*path, key), each) for key, each in value.items())
            for place, quantity in _gpu_quantities(value.get("resources")):
                if _number_of_gpus(quantity) is None:
                    return WrongValue((*path, "resources", *place), quantity, EXPECTED_GPUS)
    return None


def requested_gpus(resources: object) -> int:
    """The number of GPUs that a container's resources request; a limit takes the place of a request.

    A quantity that is no number of GPUs does not count; see `wrong_gpu_request`.

    Example:
        >>> requested_gpus({"limits": {"nvidia.com/gpu": "8", "cpu": "500m"}})
        8
    """
    found = {name: _number_of_gpus(quantity) for (_, name), quantity in _gpu_quantities(resources)}
    return sum(number or 0 for number in found.values())


def _text(template: Any) -> bytes:
    # The separators are those of the policy's `format`.
    return json.dumps(template, ensure_ascii=False, separators=(", ", ":")).encode("utf-8", "surrogatepass")


def _is_deeper(value: Any, levels: int) -> bool:
    containers = _containers([value])
    for _ in range(levels):
        containers = _containers(
            part for each in containers for part in (each.values() if isinstance(each, dict) else each)
        )
    return bool(containers)


def _containers(values: Iterable[Any]) -> list[Any]:
    return [each for each in values if isinstance(each, dict | list)]


def pod_templates(value: Any) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each object inside a value of JSON types whose spec has containers, with the keys to it."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, each = waiting.pop()
        if isinstance(each, list):
            waiting.extend(((*path, index), part) for index, part in enumerate(each))
        elif isinstance(each, dict):
            spec = each.get("spec")
            if isinstance(spec, dict) and spec.get("containers") is not None:
                yield path, each
            else:
                waiting.extend(((*path, key), part) for key, part in each.items())


def _wrong(path: Path, value: Any, form: Any) -> Iterator[WrongValue]:
    if isinstance(form, type):
        if type(value) is not form:
            # YAML reads 0.1, yes and null without quotes as something else.
            quoted = ", in quotes" if form is str and not isinstance(value, list | dict) else ""
            yield WrongValue(path, value, EXPECTED_TYPES[form] + quoted)
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield WrongValue(path, value, "a list")
            return
        for index, item in enumerate(value):
            yield from _wrong((*path, index), item, form[0])
    elif not isinstance(value, dict):
        yield WrongValue(path, value, "an object")
    else:
        # As at the API server, null is no value.
        for name, inner in form.items():
            if value.get(name) is not None:
                yield from _wrong((*path, name), value[name], inner)


def _gpu_quantities(resources: object) -> Iterator[tuple[tuple[str, str], object]]:
    if not isinstance(resources, Mapping):
        return
    for part in ("requests", "limits"):
        quantities = resources.get(part)
        if isinstance(quantities, Mapping):
            yield from (((part, name), value) for name, value in quantities.items() if GPU_RESOURCE.match(str(name)))


def _number_of_gpus(quantity: object) -> int | None:
    number = int(quantity) if isinstance(quantity, str) and NUMBER.fullmatch(quantity) else quantity
    return number if type(number) is int and 0 <= number <= MAX_GPUS_OF_CONTAINER else None
