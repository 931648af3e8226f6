"""The context manager of a rank's instructions: what a training pays for at each of them.

An instruction takes milliseconds, in which its code and data leave the processor's caches. Each further
function, object or lock then costs about a microsecond. So what is the same in all iterations is prepared
before, and an instruction does no more than compare its key, store two times, and send bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from wattloop.errors import UsageError
from wattloop.pipeline.instruction_sequence import InstructionSequence, Key

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
        self,
        requests: Sequence[bytes | None],
        send: Callable[[bytes], None],
        synchronize: Callable[[], None] | None,
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
