"""The instructions of an iteration: recorded in the first one, compared in all later ones."""

from __future__ import annotations

from collections.abc import Sequence

from wattloop.pipeline.instruction import MAX_INSTRUCTIONS, Instruction

Key = tuple[str, int, int]


class InstructionSequence:
    """Compares the instructions of each iteration with those of the first one, or with a given sequence.

    Args:
        instructions: The instructions of one iteration in execution order; empty to record those of the
            first complete iteration.

    Attributes:
        instructions: The sequence; empty until it is recorded.
        mismatch: How the last iteration differs from the sequence; empty if it does not.

    Example:
        >>> sequence = InstructionSequence()
        >>> for iteration in (1, 2):
        ...     sequence.begin()
        ...     places = [sequence.next((kind, 0, 0)) for kind in ("forward", "backward")]
        ...     assert sequence.end()
        >>> [each.text for each in sequence.instructions], places, sequence.mismatch
        (['forward:0:0', 'backward:0:0'], [0, 1], '')
        >>> sequence.begin()
        >>> sequence.next(("backward", 0, 0))
        -1
        >>> sequence.mismatch
        'position 0: found backward:0:0, expected forward:0:0'
    """

    def __init__(self, instructions: Sequence[Instruction] = ()) -> None:
        self.instructions = tuple(instructions)
        self.mismatch = ""
        self._keys = [(each.kind, each.stage, each.microbatch) for each in self.instructions]
        self._recorded: list[Key] = []
        self._position = 0
        self._differs = False

    @property
    def is_known(self) -> bool:
        """Whether the sequence was given or recorded."""
        return bool(self.instructions)

    def begin(self) -> None:
        """Begin an iteration."""
        self._position = 0
        self._differs = False
        self._recorded = []

    def next(self, key: Key) -> int:
        """Compare the next instruction of the iteration; this is cheap.

        Args:
            key: Kind, stage and microbatch.

        Returns:
            Its position in the iteration; -1 after a mismatch.
        """
        position = self._position
        if position < len(self._keys) and self._keys[position] == key and not self._differs:
            self._position = position + 1
            return position
        return self._recorded_or_differing(key)

    def _recorded_or_differing(self, key: Key) -> int:
        if self._differs:
            return -1
        found = Instruction(*key).text
        if self.is_known:
            expected = "the end" if self._position == len(self._keys) else self.instructions[self._position].text
            return self._differ(f"position {self._position}: found {found}, expected {expected}")
        if len(self._recorded) == MAX_INSTRUCTIONS:
            return self._differ(f"found more than {MAX_INSTRUCTIONS} instructions in one iteration")
        self._recorded.append(key)
        return len(self._recorded) - 1

    def end(self) -> bool:
        """End a complete iteration; returns whether it has the instructions of the sequence."""
        if self._differs:
            return False
        if not self.is_known:
            self._record()
        elif self._position < len(self._keys):
            missing = self.instructions[self._position].text
            self._differ(f"position {self._position}: found the end, expected {missing}")
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
            self._keys = self._recorded
            self.instructions = tuple(Instruction(*key) for key in self._recorded)

    def _differ(self, how: str) -> int:
        self._differs = True
        self.mismatch = how
        return -1
