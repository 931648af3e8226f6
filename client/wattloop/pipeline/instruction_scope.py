"""The instructions of an iteration, recorded in the first one, and what a training pays for at each of them.

An instruction takes milliseconds, in which its code and data leave the processor's caches. Each further
function, object or lock then costs about a microsecond. So what is the same in all iterations is prepared
before, and an instruction does no more than compare its key, store two times, and send bytes.
"""

from collections.abc import Callable, Sequence
from types import TracebackType

from wattloop.errors import UsageError
from wattloop.pipeline.instruction import MAX_INSTRUCTIONS, Instruction

Key = tuple[str, int, int]


class InstructionSequence:
    """The instructions of the first iteration, or given ones, and how those of a later one differ.

    The comparison of each instruction is that of `InstructionScope`.

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


# In place of the key after the last instruction; no key is equal to it.
END = ()


class InstructionScope:
    """Runs the instructions of an iteration, one after the other, in one thread.

    Args:
        sequence: The instructions.
        now: The clock of the stamps, in seconds.
        differs: Called when an instruction is not that of the sequence.

    Attributes:
        key: Kind, stage and microbatch of the instruction that begins next, set before each one; None afterwards.
        is_ready: Whether an instruction may begin: an iteration has begun, and no other instruction.
        stamps: Begin and end of each instruction, in seconds: ``stamps[2 * k]`` and ``stamps[2 * k + 1]``. More
            may follow.
    """

    # The stamps are a list because the code of arrays is in a library of its own.
    __slots__ = (
        "_differs",
        "_is_iterating",
        "_keys",
        "_now",
        "_position",
        "_requests",
        "_send",
        "_sequence",
        "_synchronize",
        "is_ready",
        "key",
        "stamps",
    )

    def __init__(self, sequence: InstructionSequence, now: Callable[[], float], differs: Callable[[], None]) -> None:
        self._sequence = sequence
        self._now = now
        self._differs = differs
        self.key: Key | None = None
        self.is_ready = self._is_iterating = False
        self._ignore()

    def begin(
        self, requests: Sequence[bytes | None], send: Callable[[bytes], None], synchronize: Callable[[], None] | None
    ) -> None:
        """Begin an iteration.

        Args:
            requests: What is sent at the end of each instruction; empty, or None in it: nothing.
            send: Sends it.
            synchronize: Waits until the GPUs have done the queued work; None: there is nothing to wait for.
        """
        self._keys: list[Key | tuple[()]] = [*self._sequence.keys, END]
        count = len(self._keys)
        self._requests: list[bytes | None] = [*requests, *[None] * (count - len(requests))]
        self.stamps = [0.0] * (2 * count)
        self._send = send
        self._synchronize = synchronize
        self._position = 0
        self.is_ready = self._is_iterating = True

    def end(self) -> int:
        """End the iteration; returns the number of instructions that were those of the sequence."""
        position = self._position
        self._ignore()
        self.is_ready = self._is_iterating = False
        return position

    @property
    def running(self) -> int | None:
        """Position of the instruction that runs; None outside of one."""
        return self._position if self._is_iterating and not self.is_ready else None

    def wrong_use(self) -> UsageError:
        """Why no instruction may begin now."""
        if self._is_iterating:
            return UsageError("an instruction begins inside another one; end the first one before")
        return UsageError("an instruction begins outside of pipeline.iteration()")

    def __enter__(self) -> None:
        if self.key != self._keys[self._position]:
            self._other()
        self.key = None
        self.is_ready = False
        if self._synchronize is not None:
            self._synchronize()
        self.stamps[2 * self._position] = self._now()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_ready = True
        if self._synchronize is not None and kind is None:
            self._synchronize()
        position = self._position
        self.stamps[2 * position + 1] = self._now()
        self._position = position + 1
        request = self._requests[position]
        if request is not None:
            self._send(request)

    def _other(self) -> None:
        """Begin an instruction that is not the expected one: record it, or ignore the rest of the iteration."""
        key = self.key
        if key is None:
            raise UsageError("an instruction begins a second time; call pipeline.instruction for each")
        if not self._is_iterating:
            raise self.wrong_use()
        if self._sequence.other(self._position, key):
            self._keys[-1:] = [key, END]
            self._requests.append(None)
            self.stamps += [0.0, 0.0]
        else:
            self._ignore()
            self._differs()

    def _ignore(self) -> None:
        """Stamp and send nothing that counts; each further instruction differs, too."""
        self._keys = [END, END]
        self._requests = [None, None]
        self.stamps = [0.0] * 4
        self._synchronize = None
        self._position = 0
