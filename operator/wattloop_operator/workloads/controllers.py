"""The controllers of workloads: which versions of Kueue, Trainer and JobSet fit together.

Kueue writes where pods may run into a field of a TrainJob, which has another name in each version of Trainer. With a
version that Kueue was not built for, a TrainJob in a queue never starts, and nothing on it says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Version = tuple[int, int, int]

KUEUE, TRAINER, JOBSET = "Kueue", "Kubeflow Trainer", "JobSet"
# The last two parts of an image's path, without a registry, which mirrors change.
IMAGES = {"kueue/kueue": KUEUE, "trainer/trainer-controller-manager": TRAINER, "jobset/jobset": JOBSET}
# Names of the projects whose controllers serve a group.
PROJECTS = {
    "kueue.x-k8s.io": KUEUE,
    "trainer.kubeflow.org": TRAINER,
    "jobset.x-k8s.io": JOBSET,
    "kubeflow.org": "the Kubeflow training operator",
    "ray.io": "KubeRay",
}
_IMAGE = re.compile(r"(?P<path>[^/:@]+/[^/:@]+):v?(?P<version>\d+\.\d+\.\d+)(?![\d.])")


@dataclass(frozen=True)
class Fit:
    """The versions that were built for each other.

    Attributes:
        first: First version of Kueue.
        last: Last minor or patch version of Kueue, inclusive.
        trainer: Version of Trainer; None if that Kueue knows no TrainJobs.
        jobset: Minor version of JobSet.
    """

    first: Version
    last: Version
    trainer: Version | None
    jobset: tuple[int, int]


LATEST_PATCH = 1_000_000
FITS = (
    Fit((0, 12, 0), (0, 13, LATEST_PATCH), None, (0, 8)),
    Fit((0, 14, 0), (0, 14, 4), (2, 0, 1), (0, 10)),
    Fit((0, 14, 5), (0, 16, LATEST_PATCH), (2, 1, 0), (0, 10)),
    Fit((0, 17, 0), (0, 17, LATEST_PATCH), (2, 2, 0), (0, 11)),
    Fit((0, 18, 0), (0, 19, LATEST_PATCH), (2, 2, 1), (0, 12)),
    Fit((0, 20, 0), (0, 20, LATEST_PATCH), (2, 3, 0), (0, 12)),
)


def versions_of(deployments: Iterable[Mapping[str, Any]]) -> dict[str, Version]:
    """The versions of the controllers among these Deployments, by the tags of their images.

    Example:
        >>> pod = {"spec": {"containers": [{"image": "registry.example/kueue/kueue:v0.19.2"}]}}
        >>> versions_of([{"spec": {"template": pod}}])
        {'Kueue': (0, 19, 2)}
    """
    versions: dict[str, Version] = {}
    for each in deployments:
        for container in each["spec"]["template"]["spec"].get("containers") or ():
            found = _IMAGE.search(str(container.get("image", "")))
            if found is not None and found["path"] in IMAGES:
                major, minor, patch = map(int, found["version"].split("."))
                versions[IMAGES[found["path"]]] = major, minor, patch
    return versions


def version_problems(versions: Mapping[str, Version]) -> Iterator[str]:
    """What does not fit together, with the version to install.

    Example:
        >>> next(version_problems({"Kueue": (0, 19, 2), "Kubeflow Trainer": (2, 1, 0)}))
        'Kueue 0.19.2 was built for Kubeflow Trainer 2.2.1, found 2.1.0: a TrainJob in a queue never starts'
    """
    kueue = versions.get(KUEUE)
    fit = None if kueue is None else next((each for each in FITS if each.first <= kueue <= each.last), None)
    if kueue is None or fit is None:
        return
    trainer, jobset = versions.get(TRAINER), versions.get(JOBSET)
    if trainer is not None and fit.trainer is None:
        yield f"{KUEUE} {_text(kueue)} manages no TrainJobs, which 0.14.0 was the first to do: update {KUEUE}"
    elif trainer is not None and trainer[:2] != (fit.trainer or trainer)[:2]:
        yield (
            f"{KUEUE} {_text(kueue)} was built for {TRAINER} {_text(fit.trainer or trainer)}, found {_text(trainer)}: "
            "a TrainJob in a queue never starts"
        )
    if jobset is not None and jobset[:2] < fit.jobset:
        yield (
            f"{KUEUE} {_text(kueue)} was built for {JOBSET} {fit.jobset[0]}.{fit.jobset[1]}, found {_text(jobset)}: "
            "a JobSet in a queue may lack what Kueue writes"
        )


def version_text(versions: Mapping[str, Version]) -> str:
    """The versions in one line."""
    return ", ".join(f"{name} {_text(version)}" for name, version in sorted(versions.items()))


def project_of(api_version: str) -> str:
    """The project whose controller serves a kind.

    Example:
        >>> project_of("jobset.x-k8s.io/v1alpha2"), project_of("other.example.com/v1")
        ('JobSet', 'the controller of other.example.com')
    """
    group = api_version.rpartition("/")[0]
    return PROJECTS.get(group, f"the controller of {group}")


def _text(version: Version) -> str:
    return ".".join(map(str, version))
