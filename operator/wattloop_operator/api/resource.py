"""The API group, and what a CustomResourceDefinition states beside the schema: names, scope, columns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

GROUP: Final = "wattloop.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "wattloop.dev/v1alpha1"
CATEGORY = "wattloop"


class Scope(StrEnum):
    """Whether objects of a kind belong to a namespace."""

    NAMESPACED = "Namespaced"
    CLUSTER = "Cluster"


@dataclass(frozen=True)
class PrinterColumn:
    """One column of `kubectl get`.

    Attributes:
        name: Heading.
        path: JSONPath of the value in the object.
        description: Meaning of the value.
        type: OpenAPI type: string, integer, boolean or date.
        wide: Whether only `-o wide` shows the column.
    """

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False


@dataclass(frozen=True)
class Resource:
    """Names, scope and columns of a kind."""

    kind: str
    plural: str
    singular: str
    short_name: str
    scope: Scope
    columns: tuple[PrinterColumn, ...]
