"""An instruction of a pipeline's iteration, and its form in messages."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Annotated

from wattloop.wire.message_fields import Pattern

MAX_INSTRUCTIONS = 16_384
KIND_PATTERN = "[a-z][a-z0-9]{0,31}"
KIND = re.compile(KIND_PATTERN)
INSTRUCTION = re.compile(f"({KIND_PATTERN}):(0|[1-9][0-9]{{0,3}}):(0|[1-9][0-9]{{0,5}})")

Kind = Annotated[str, Pattern(KIND, 32, "a lower-case name such as forward or backward")]


@dataclass(frozen=True)
class Instruction:
    """One instruction of an iteration.

    Attributes:
        kind: ``forward``, ``backward``, or another lower-case name.
        stage: The model stage, from 0; with interleaved schedules a rank has several.
        microbatch: From 0.

    Example:
        >>> Instruction("forward", 0, 12).text
        'forward:0:12'
        >>> Instruction.of("backward:3:0")
        Instruction(kind='backward', stage=3, microbatch=0)
    """

    kind: str
    stage: int
    microbatch: int

    @property
    def text(self) -> str:
        """The form in messages."""
        return f"{self.kind}:{self.stage}:{self.microbatch}"

    @staticmethod
    @functools.lru_cache(maxsize=MAX_INSTRUCTIONS)
    def of(text: str) -> Instruction:
        """Read the form in messages.

        Raises:
            ValueError: The text has another form.
        """
        found = INSTRUCTION.fullmatch(text)
        if found is None:
            raise ValueError(f"found {text!r:.60}, expected kind:stage:microbatch, such as forward:0:12")
        return Instruction(found[1], int(found[2]), int(found[3]))


InstructionText = Annotated[
    str, Pattern(INSTRUCTION, 64, "an instruction as kind:stage:microbatch, such as forward:0:12")
]
