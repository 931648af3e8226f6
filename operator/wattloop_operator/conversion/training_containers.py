"""Which containers of a workload train: those with GPUs, and of them those with the batch size or the epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wattloop_operator.api.checks.manifest_problem import Path
from wattloop_operator.api.template_checks import pod_templates, requested_gpus
from wattloop_operator.conversion.training_arguments import find_arguments


@dataclass(frozen=True)
class TrainingContainers:
    """The containers that train.

    Attributes:
        names: Their names; None if all containers train, or if it is not known which do.
        path: The pod's containers in the workload, if it has others beside them.
        others: Names of the containers beside them, or of all if it is not known which of them trains.
    """

    names: tuple[str, ...] | None = None
    path: Path = ()
    others: tuple[str, ...] = ()


def training_containers(spec: dict[str, Any]) -> TrainingContainers:
    """The containers of a workload's spec that train.

    Example:
        >>> containers = [{"name": "monitor"}, {"name": "train", "args": ["--batch-size=64"]}]
        >>> training_containers({"template": {"spec": {"containers": containers}}}).names
        ('train',)
    """
    names: list[str] = []
    found, is_known = TrainingContainers(), True
    for path, pod in pod_templates(spec):
        listed = pod["spec"]["containers"]
        containers = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        training = _training(containers)
        others = tuple(str(each.get("name")) for each in containers if each not in training)
        if others:
            is_known = is_known and bool(training)
            found = TrainingContainers(None, (*path, "spec", "containers"), others)
        names += [str(each.get("name")) for each in training]
    return (
        TrainingContainers(tuple(dict.fromkeys(names)), found.path, found.others) if found.path and is_known else found
    )


def _training(containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The containers of a pod that train; none if nothing shows which do."""
    if len(containers) < 2:
        return containers
    with_gpus = [each for each in containers if requested_gpus(each.get("resources"))]
    with_settings = [each for each in with_gpus or containers if find_arguments({"containers": [each]}).is_any]
    return with_settings or with_gpus
