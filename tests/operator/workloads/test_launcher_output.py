"""What torchrun prints at its end tells which ranks were killed."""

import pytest

from wattloop_operator.workloads.container_status import MAX_OUTPUT_CHARACTERS, killed_ranks_in

# As PyTorch 2.9 prints it, without the traceback of the launcher itself.
OUTPUT = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-03-01_12:00:00
  host      : gpu-7
  rank      : 2 (local_rank: 2)
  exitcode  : {first} (pid: 4713) (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4713
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-03-01_12:00:00
  host      : gpu-7
  rank      : 0 (local_rank: 0)
  exitcode  : {root} (pid: 4711)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


@pytest.mark.parametrize(
    ("first", "root", "killed"),
    [
        # The root cause is only the first in whole seconds, and of the same second the lowest rank.
        (-9, 1, (2,)),
        (1, 1, ()),
        (-9, -11, (0, 2)),
        # NCCL's watchdog aborts those that wait for a lost rank; torchrun ends the others with SIGTERM.
        (-9, -6, (2,)),
        (-6, 1, (2,)),
        (-15, 1, ()),
    ],
)
def test_the_ranks_that_a_signal_killed_are_found(first: int, root: int, killed: tuple[int, ...]) -> None:
    assert killed_ranks_in("epoch 1\n" * 1000 + OUTPUT.format(first=first, root=root)) == killed


@pytest.mark.parametrize(
    "flood", ["", " " * MAX_OUTPUT_CHARACTERS, "  rank      : " * 9000, "\n" * 70_000, chr(0xFFFD)]
)
def test_other_output_names_no_rank(flood: str) -> None:
    assert killed_ranks_in(flood) == ()
