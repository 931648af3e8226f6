"""Bounds of a template: the chart's admission policy, the operator and `wattloop validate` apply the same.

The schema cannot bound what it does not know: most of a template is preserved as written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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
        >>> template_bytes({"job": {"a": [1, 2]}})
        20
    """
    return len(_text(template))


def exceeded_limit(template: Any) -> ExceededLimit | None:
    """The bound that a template of JSON types exceeds; None if it exceeds none.

    Example:
        >>> exceeded_limit({"job": {"x": "," * 9000}}).found
        '9000 commas'
    """
    text = _text(template)
    if len(text) > MAX_TEMPLATE_BYTES:
        return ExceededLimit(f"{len(text)} bytes", TOO_LARGE)
    if text.count(b",") > MAX_TEMPLATE_COMMAS:
        return ExceededLimit(f"{text.count(b',')} commas", TOO_MANY)
    return ExceededLimit("more levels", TOO_DEEP) if _is_deeper(template, MAX_TEMPLATE_DEPTH) else None


def full_namespace(others_bytes: int, own_bytes: int) -> ExceededLimit | None:
    """Why a template has no room in its namespace; None if it has.

    Args:
        others_bytes: Bytes of the namespace's other templates.
        own_bytes: Bytes of the template.
    """
    total = others_bytes + own_bytes
    if total <= MAX_NAMESPACE_TEMPLATE_BYTES:
        return None
    return ExceededLimit(f"{total} bytes together with the templates of its namespace", NAMESPACE_FULL)


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
