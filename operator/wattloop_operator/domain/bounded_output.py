"""An output reader whose processor time is bounded, as its lines and its pattern are a tenant's.

The time of a pattern grows with its size: one with repetitions such as ``.{0,900}`` takes 0.2 s for a line of 16 KiB.
The processor time of all lines is therefore charged to a budget, beyond which the output is read with a delay. A
user's pattern that spends a second in slow lines is used no more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from wattloop.printable import quoted
from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import Reporting
from wattloop_operator.domain.training_output import MAX_LINE_BYTES, Evaluation, OutputReader

# Wattloop's own forms take 4 ms for the longest line, and 0.15 s for the 4,096 lines that are read a second.
MAX_LINE_SECONDS = 0.005
# Processor time of a second, and in reserve.
PROCESSOR_SHARE, PROCESSOR_RESERVE_SECONDS = 0.25, 1.0
SLOW_SHARE, SLOW_RESERVE_SECONDS = 0.05, 1.0


class SlowPatternError(Exception):
    """A user's pattern takes too much processor time; the text says for what line, and what to do."""


class BoundedOutputReader(OutputReader):
    """An `OutputReader` whose processor time is bounded. For one thread.

    Args:
        monotonic: Monotonic seconds.
        processor_time: Seconds of processor time of the calling thread.
        max_epochs, has_counted, counts_from_0: See `OutputReader`.

    Raises:
        PatternError: The pattern cannot be used.
    """

    def __init__(
        self,
        reporting: Reporting,
        target: Target,
        monotonic: Callable[[], float] = time.monotonic,
        processor_time: Callable[[], float] = time.thread_time,
        *,
        max_epochs: float = math.inf,
        has_counted: bool = False,
        counts_from_0: bool = False,
    ) -> None:
        super().__init__(reporting, target, max_epochs=max_epochs, has_counted=has_counted, counts_from_0=counts_from_0)
        self._users_pattern = reporting.pattern
        self._processor_time = processor_time
        self._all_lines = _Budget(PROCESSOR_SHARE, PROCESSOR_RESERVE_SECONDS, monotonic)
        self._slow_lines = _Budget(SLOW_SHARE, SLOW_RESERVE_SECONDS, monotonic)

    def read(self, line: bytes, number: int = 0) -> Evaluation | None:
        """See `OutputReader.read`.

        Raises:
            SlowPatternError: The pattern has spent its time in slow lines; read no further one.
        """
        begin = self._processor_time()
        evaluation = super().read(line, number)
        seconds = self._processor_time() - begin
        self._all_lines.spend(seconds)
        # A pause of the process, such as for its garbage, also counts, which the reserve allows for.
        if self._users_pattern is not None and seconds > MAX_LINE_SECONDS:
            self._slow_lines.spend(seconds)
            if self._slow_lines.debt_seconds > 0:
                raise SlowPatternError(
                    f"the pattern {quoted(self._users_pattern)} takes {1000 * seconds:.0f} ms of processor time for a "
                    f"line of {min(len(line), MAX_LINE_BYTES)} bytes, so the output is searched no further; expected "
                    f"at most {1000 * MAX_LINE_SECONDS:.0f} ms: write spec.reporting.pattern with fewer repetitions"
                )
        return evaluation

    @property
    def wait_seconds(self) -> float:
        """How long to wait before the next line, so that the share of a processor is kept."""
        return self._all_lines.debt_seconds / PROCESSOR_SHARE


class _Budget:
    """Seconds to spend, of which a share of each second is added, up to a reserve."""

    def __init__(self, share: float, reserve_seconds: float, monotonic: Callable[[], float]) -> None:
        self._share = share
        self._reserve_seconds = self._left_seconds = reserve_seconds
        self._monotonic = monotonic
        self._counted_at = monotonic()

    def spend(self, seconds: float) -> None:
        self._count()
        self._left_seconds -= seconds

    @property
    def debt_seconds(self) -> float:
        self._count()
        return max(-self._left_seconds, 0.0)

    def _count(self) -> None:
        now = self._monotonic()
        added = (now - self._counted_at) * self._share
        self._left_seconds = min(self._left_seconds + added, self._reserve_seconds)
        self._counted_at = now
