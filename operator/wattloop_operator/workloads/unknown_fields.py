"""Fields of a template that the cluster's version of a kind does not have: the API server would drop them silently.

With the field validation Strict it rejects them instead, and names their paths in the workload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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


def unknown_field(template: Template, sent: Mapping[str, Any], rejection: str) -> WrongValue | None:
    """The first field in a rejection that the template has; None if it has none, because Wattloop added them.

    Args:
        template: The template.
        sent: The workload that was made of it, which has more variables.
        rejection: The API server's message.

    Example:
        >>> template = Template(spec={"template": {"spec": {"restartPolcy": "Never"}}})
        >>> message = 'strict decoding error: unknown field "spec.template.spec.restartPolcy"'
        >>> str(unknown_field(template, {"spec": template.spec.value}, message)).partition(", ")[0]
        "spec.template.spec.template.spec.restartPolcy: found 'Never'"
    """
    written_spec = {"spec": template.spec.value}
    for match in UNKNOWN_FIELD.finditer(rejection):
        steps: Path = tuple(int(index) if index else name for name, index in STEP.findall(match[1]))
        written = _as_written(written_spec, sent, steps)
        if written is not None and len(steps) > 1:
            path, value = written
            return WrongValue(("template", *path), value, EXPECTED)
    return None


def _as_written(template: Any, sent: Any, steps: Path) -> tuple[Path, Any] | None:
    """A path in a workload as the path in its template, and the value there; None if the template has none."""
    path: list[int | str] = []
    for step in steps:
        at = step
        if isinstance(step, int) and path[-1:] == ["env"] and isinstance(template, list):
            # Wattloop's variables come before the user's.
            at = step - (len(sent) - len(template))
        if isinstance(at, int) and at < 0:
            return None
        try:
            template, sent = template[at], sent[step]
        except (LookupError, TypeError):
            return None
        path.append(at)
    return tuple(path), template
