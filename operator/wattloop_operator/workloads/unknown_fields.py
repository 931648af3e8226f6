"""Fields of a template that the cluster's version of a kind does not have: the API server would drop them silently.

With the field validation Strict it rejects them instead, and names their paths in the workload.
"""

from __future__ import annotations

import re
from typing import Any

from wattloop_operator.api.template import Template
from wattloop_operator.api.template_checks import Path, WrongValue

STRICT_ERROR = "strict decoding error"
UNKNOWN_FIELD = re.compile(r'unknown field "((?:[^"\\]|\\.)*)"')
STEP = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")
EXPECTED = "no field of this name, which the API server would drop; correct its name or its place, or remove it"


def is_unknown_field(rejection: str) -> bool:
    """Whether the API server rejects an object only for a field that its kind does not have."""
    return STRICT_ERROR in rejection


def unknown_field(template: Template, rejection: str) -> WrongValue | None:
    """The first field in a rejection that the template has; None if it has none, because Wattloop added them.

    Args:
        template: The template.
        rejection: The API server's message.

    Example:
        >>> template = Template(job={"template": {"spec": {"restartPolcy": "Never"}}})
        >>> message = 'strict decoding error: unknown field "spec.template.spec.restartPolcy"'
        >>> str(unknown_field(template, message)).partition(", ")[0]
        "spec.template.job.template.spec.restartPolcy: found 'Never'"
    """
    spec, place = _spec(template)
    for match in UNKNOWN_FIELD.finditer(rejection):
        steps: Path = tuple(int(index) if index else name for name, index in STEP.findall(match[1]))
        found, value = _value({"spec": spec}, steps)
        if found and len(steps) > 1:
            return WrongValue((*place, *steps[1:]), value, EXPECTED)
    return None


def _spec(template: Template) -> tuple[dict[str, Any], Path]:
    """The spec of the workload as the user wrote it, and the path to it from the template."""
    if template.workload is not None:
        return template.workload.spec.value, ("workload", "spec")
    return {} if template.job is None else template.job.value, ("job",)


def _value(value: Any, steps: Path) -> tuple[bool, Any]:
    """Whether a value has something at a path, and what."""
    for step in steps:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return False, None
    return True, value
