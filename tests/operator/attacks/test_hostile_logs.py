"""A log of 100 MB without a line end, and logs that the kubelet rotates, beside the log of a victim."""

import itertools
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from support.reporting.followed_logs import VirtualFlow, follower, interrupted
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.cluster.pod_logs import CHUNK_BYTES, GAP, MAX_BYTES_PER_SECOND
from wattloop_operator.reconcile.attempt.report_effect import OutputReport

SIZE = 100 * 1000 * 1000
EPOCHS = [
    f"1970-01-01T00:00:{second:02}.25Z epoch={second} accuracy=0.{second:02}\n".encode() for second in range(1, 30)
]
FILLINGS = {
    "progress bars": b"\r 50%|#####     | 5/10 [00:01<00:01, acc=0.5]" * (CHUNK_BYTES // 46),
    "carriage returns": b"\r" * CHUNK_BYTES,
    "spaces": b" " * CHUNK_BYTES,
    "times": b"1970-01-01T00:00:02Z " * (CHUNK_BYTES // 21),
}


def without_line_end(filling: bytes) -> Iterator[bytes]:
    return itertools.chain([EPOCHS[0], b"1970-01-01T00:00:01.5Z "], itertools.repeat(filling, SIZE // len(filling)))


@pytest.mark.parametrize("filling", exhaustive_after(FILLINGS))
def test_100_megabytes_without_a_line_end_take_bounded_memory_and_time_and_leave_a_victim_its_figures(
    filling: str,
) -> None:
    def victim() -> tuple[list[OutputReport], float]:
        seen: list[OutputReport] = []
        began = time.thread_time()
        follower(lambda _: iter(EPOCHS), seen).run()
        return seen, time.thread_time() - began

    before, before_seconds = victim()
    flow, seen = VirtualFlow(), []
    log = itertools.chain(without_line_end(FILLINGS[filling]), [b"\n", EPOCHS[5]])
    tracemalloc.start()
    began = time.thread_time()
    try:
        follower(lambda _: log, seen, flow=flow).run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    seconds = time.thread_time() - began
    during, during_seconds = victim()
    print(f"{filling}: {peak / 1e6:.1f} MB, {seconds:.1f} s of processor time over {flow.now:.0f} s; "
          f"the victim {before_seconds * 1000:.0f} ms before, {during_seconds * 1000:.0f} ms after")  # fmt: skip
    assert [report.epoch for report in seen] == [1, 6]
    assert peak < 2 * 1000 * 1000
    assert flow.now > 0.9 * SIZE / MAX_BYTES_PER_SECOND, "at the rate of one log"
    assert during == before


BARS = b"".join(
    b"\r%3d%%|##   | %d/100 [00:01<00:01, accuracy=0.5]" % (step // 100, step // 100) for step in range(9_900)
)


@pytest.mark.parametrize("size", exhaustive_after([CHUNK_BYTES, 999, 10**6]))
@pytest.mark.parametrize(
    ("middle", "metrics"),
    [
        (BARS, [0.91]),
        # Neither the "accuracy=0.9" of 0.91 that the cut leaves, nor the text of which it takes the beginning.
        (b" accuracy=0.95" * 20_000 + b"\r", [0.91]),
        (b"x" * 300_000, []),
    ],
    ids=["bars", "a text that is cut", "one text"],
)
def test_the_end_of_a_long_line_counts_from_the_first_carriage_return_on(
    size: int, middle: bytes, metrics: list[float]
) -> None:
    line = b"1970-01-01T00:00:01Z epoch=1 loss=0.3\r" + middle + b"\repoch=2 accuracy=0.91\n"
    line = line if metrics else line.replace(b"\repoch", b" epoch")
    seen: list[OutputReport] = []
    follower(lambda _: iter([line[at : at + size] for at in range(0, len(line), size)]), seen).run()
    assert [report.metric for report in seen] == metrics


class Kubelet:
    """A log of which the kubelet keeps the newest file alone, and serves it from a time on."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.rotated = self.written = 0

    def open(self, since_nanoseconds: int) -> Iterator[bytes]:
        """What is kept, and then an interruption."""
        since = f"1970-01-01T00:00:{since_nanoseconds // 10**9:02}".encode()
        return interrupted(*(line for line in self.lines[self.rotated : self.written] if line >= since))


def epochs_read(lines: list[bytes], steps: list[tuple[str, int]], *, new_leader: bool) -> tuple[list[Any], str]:
    """The epochs that are reported of a log, and the gap: `write` and `rotate` come to a line, `read` opens the log."""
    kubelet, seen, before = Kubelet(lines), [], None
    for step, line in steps:
        if step == "read":
            last = None if before is None else seen[-1]
            before = follower(
                kubelet.open,
                seen,
                position=0 if last is None else last.position,
                before=None if new_leader else before,
                has_counted=bool(seen),
                counts_from_0=last is not None and last.counts_from_0,
            )
            before.run()
        elif step == "write":
            kubelet.written = line
        else:
            kubelet.rotated = line
    return [report.epoch for report in seen], before.gap


FROM_0 = [line.replace(b"epoch=%d" % (index + 1), b"epoch=%d" % index) for index, line in enumerate(EPOCHS)]
WITHOUT = [line.replace(b"epoch=%d " % (index + 1), b"") for index, line in enumerate(EPOCHS)]
ROTATIONS = {
    "a file that has been read": [("write", 10), ("read", 0), ("rotate", 10), ("write", 20), ("read", 0)],
    "a part that has been read": [("write", 10), ("read", 0), ("rotate", 6), ("write", 20), ("read", 0)],
    "nothing new since": [("write", 10), ("read", 0), ("rotate", 10), ("read", 0), ("write", 20), ("read", 0)],
    "at each line": [each for line in range(1, 21) for each in (("write", line), ("read", 0), ("rotate", line))],
}


@pytest.mark.parametrize("new_leader", [True, False])
@pytest.mark.parametrize("steps", ROTATIONS)
@pytest.mark.parametrize("form", ["from 1", "from 0"])
def test_a_log_that_is_rotated_after_it_was_read_counts_each_epoch_once(
    form: str, steps: str, new_leader: bool
) -> None:
    lines = {"from 1": EPOCHS, "from 0": FROM_0}[form]
    assert epochs_read(lines, ROTATIONS[steps], new_leader=new_leader)[0] == list(range(1, 21))


@pytest.mark.parametrize("new_leader", [True, False])
def test_lines_that_were_rotated_away_unread_are_a_gap_unless_the_output_has_epochs(new_leader: bool) -> None:
    lost = [("write", 10), ("read", 0), ("write", 20), ("rotate", 15), ("read", 0)]
    epochs, gap = epochs_read(EPOCHS, lost, new_leader=new_leader)
    assert (epochs, gap) == ([*range(1, 11), *range(16, 21)], "")
    epochs, gap = epochs_read(WITHOUT, lost, new_leader=new_leader)
    assert (len(epochs), set(epochs), gap) == (15, {None}, GAP)
    kept = [("write", 10), ("read", 0), ("write", 20), ("rotate", 9), ("read", 0)]
    epochs, gap = epochs_read(WITHOUT, kept, new_leader=new_leader)
    assert (len(epochs), gap) == (20, "")
