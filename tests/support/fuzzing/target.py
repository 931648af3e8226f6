"""The interface of a fuzz target: it checks any bytes, and raises if the product has a defect."""

import random
from typing import Protocol, runtime_checkable


class DefectError(AssertionError):
    """The product behaved incorrectly for an input."""


class Target(Protocol):
    """One input interface of the product.

    Attributes:
        tokens: Tokens of the input's syntax, which mutations insert.
    """

    tokens: tuple[bytes, ...]

    def seeds(self) -> list[bytes]:
        """The inputs that mutations start from."""

    def check(self, data: bytes) -> None:
        """Pass an input to the product and check the result.

        Raises:
            Exception: The product raised an undocumented exception, which is a defect too.
        """

    def close(self) -> None:
        """Release the target's resources."""


@runtime_checkable
class SteppedTarget(Target, Protocol):
    """A target whose input is a sequence of lines, each of which is a step."""

    def random_step(self, rng: random.Random) -> bytes:
        """A step that mutations insert between two lines, with its line end."""
