"""Which ranks were killed, from what torchrun prints at its end.

torchrun lists each rank of its machine that had failed when it noticed, with its exit code, and a root cause. That
is the earliest in whole seconds, so it may be a rank that only lost its connection to the one that was killed.
"""

from __future__ import annotations

import re
import signal

MAX_OUTPUT_CHARACTERS = 64 * 1024
_FAILURE = re.compile(
    r"^ {0,8}rank {1,8}: (\d{1,7}) \(local_rank: \d{1,7}\)\s{1,16}exitcode {1,8}: -(\d{1,3}) ",
    re.MULTILINE | re.ASCII,
)
# How torchrun ends the other ranks. NCCL's watchdog aborts a rank that waits for a lost one.
_CONSEQUENCES = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def killed_ranks_in(output: str) -> tuple[int, ...]:
    r"""The ranks that a signal ended, by the end of the output of torchrun; empty if it names none.

    Args:
        output: The end of the output.

    Example:
        >>> killed_ranks_in("  rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 7)\n  error_file: <N/A>")
        (2,)
        >>> killed_ranks_in("  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 6)\\n")
        ()
    """
    found = [(int(rank), int(number)) for rank, number in _FAILURE.findall(output[-MAX_OUTPUT_CHARACTERS:])]
    killed = [(rank, number) for rank, number in found if number not in _CONSEQUENCES]
    others = [(rank, number) for rank, number in killed if number != signal.SIGABRT]
    return tuple(sorted({rank for rank, _ in others or killed}))
