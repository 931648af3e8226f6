"""The instructions of an iteration: recorded in the first one, compared in all later ones."""

from __future__ import annotations

from collections.abc import Sequence

from wattloop.pipeline.instruction import MAX_INSTRUCTIONS, Instruction

Key = tuple[str, int, int]


class InstructionSequence:
    """The instructions of the first iteration, or given ones, and how those of a later one differ.

    The comparison of each instruction is that of `wattloop.pipeline.instruction_scope`.

    Args:
        instructions: The instructions of one iteration in execution order; empty to record those of the
            first complete iteration.

    Attributes:
        instructions: The sequence; empty until it is recorded.
        keys: Kind, stage and microbatch of each.
        mismatch: How the last iteration differs from the sequence; empty if it does not.

    Example:
        >>> sequence = InstructionSequence()
        >>> for position, kind in enumerate(("forward", "backward")):
        ...     assert sequence.other(position, (kind, 0, 0))
        >>> sequence.end(2), [each.text for each in sequence.instructions]
        (True, ['forward:0:0', 'backward:0:0'])
        >>> sequence.begin()
        >>> sequence.other(0, ("backward", 0, 0)), sequence.end(0)
        (False, False)
        >>> sequence.mismatch
        'position 0: found backward:0:0, expected forward:0:0'
    """

    def __init__(self, instructions: Sequence[Instruction] = ()) -> None:
        self.instructions = tuple(instructions)
        self.mismatch = ""
        self.keys: Sequence[Key] = [(each.kind, each.stage, each.microbatch) for each in self.instructions]
        self._recorded: list[Key] = []
        self._differs = False

    @property
    def is_known(self) -> bool:
        """Whether the sequence was given or recorded."""
        return bool(self.instructions)

    def begin(self) -> None:
        """Begin an iteration."""
        self._differs = False
        self._recorded = []

    def other(self, position: int, key: Key) -> bool:
        """Record an instruction that is not the expected one, or note the mismatch.

        Args:
            position: Its position in the iteration.
            key: Kind, stage and microbatch.

        Returns:
            Whether it is recorded.
        """
        if self._differs:
            return False
        found = Instruction(*key).text
        if self.is_known:
            expected = "the end" if position == len(self.keys) else self.instructions[position].text
            return self._differ(f"position {position}: found {found}, expected {expected}")
        if position == MAX_INSTRUCTIONS:
            return self._differ(f"found more than {MAX_INSTRUCTIONS} instructions in one iteration")
        self._recorded.append(key)
        return True

    def end(self, position: int) -> bool:
        """End a complete iteration; returns whether it has the instructions of the sequence.

        Args:
            position: The number of its instructions that were as expected, or recorded.
        """
        if self._differs:
            return False
        if not self.is_known:
            self._record()
        elif position < len(self.keys):
            missing = self.instructions[position].text
            self._differ(f"position {position}: found the end, expected {missing}")
        if not self._differs:
            self.mismatch = ""
        return not self._differs

    def _record(self) -> None:
        twice = next((key for place, key in enumerate(self._recorded) if key in self._recorded[:place]), None)
        if twice is not None:
            text = Instruction(*twice).text
            self._differ(f"found {text} twice in one iteration, expected each instruction once")
        elif not self._recorded:
            self._differ("found an iteration without instructions")
        else:
            self.keys = self._recorded
            self.instructions = tuple(Instruction(*key) for key in self._recorded)

    def _differ(self, how: str) -> bool:
        self._differs = True
        self.mismatch = how
        return False
