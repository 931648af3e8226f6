"""What a CustomResourceDefinition says of a kind beside its schema: names, scope, columns of `kubectl get`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """Whether objects of a kind live in a namespace."""

    NAMESPACED = "Namespaced"
    CLUSTER = "Cluster"


@dataclass(frozen=True)
class Column:
    """One column of `kubectl get`.

    Attributes:
        name: Its heading.
        path: JSONPath of its value within the object.
        description: What it shows.
        type: The OpenAPI type: string, integer, boolean or date.
        wide: Whether only `-o wide` shows it.
    """

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False


@dataclass(frozen=True)
class Resource:
    """A kind's names and columns."""

    kind: str
    plural: str
    singular: str
    short_name: str
    scope: Scope
    columns: tuple[Column, ...]
