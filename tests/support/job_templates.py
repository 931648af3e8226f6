"""Jobs with one change each, and what `wattloop validate` says about them: those of tests/manifests."""

from pathlib import Path
from typing import Any, NamedTuple

from wattloop_operator.api.checks.documents import read_documents

FILE = Path(__file__).parents[1] / "manifests" / "job-templates.yaml"


class TemplateCase(NamedTuple):
    """A Job, and its verdict.

    Attributes:
        job: The spec of the Job.
        says: A part of the message; empty if the Job is accepted.
    """

    job: dict[str, Any]
    says: str
    title: str


def template_cases() -> list[TemplateCase]:
    """The cases of the file."""
    (document,) = read_documents(str(FILE), FILE.read_text(encoding="utf-8"))
    return [
        TemplateCase(_job(each), each.get("says", ""), f"{ {name: each[name] for name in each if name != 'says'} }")
        for each in document.value
    ]


def _job(case: dict[str, Any]) -> dict[str, Any]:
    container = {"name": "train", "image": "registry.example/train:1", **case.get("container", {})}
    pod = {"restartPolicy": "Never", "containers": [container], **case.get("pod", {})}
    template = {"spec": pod} | ({"metadata": case["metadata"]} if "metadata" in case else {})
    return {"template": template, **case.get("job", {})}
