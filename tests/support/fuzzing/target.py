"""What a fuzz target is: it takes any bytes, and raises where the product has a defect."""

from __future__ import annotations

from typing import Protocol


class DefectError(AssertionError):
    """The product did with this input what it must never do."""


class Target(Protocol):
    """One door of the product, open for as long as the target is.

    Attributes:
        tokens: Words of the door's language, which mutations insert.
    """

    tokens: tuple[bytes, ...]

    def seeds(self) -> list[bytes]:
        """Inputs to begin with, from the corpus of the tests."""

    def check(self, data: bytes) -> None:
        """Give an input to the product and check what came of it.

        Raises:
            DefectError: The product broke a promise.
            Exception: The product raised an exception that it does not document: a defect as well.
        """

    def close(self) -> None:
        """Give back what the target holds."""
