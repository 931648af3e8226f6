"""The rows of a file on this machine: each row of the run counts once, and none of an earlier run."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop_operator.api.objective import Target
from wattloop_operator.domain.metric_rows import RowReader
from wattloop_operator.local.output_file import DOUBT_SECONDS, OutputFile

TARGET = Target.model_validate({"metric": "val_acc", "threshold": "0.9"})
HEAD = "epoch,val_acc\n"


class Followed:
    """A file that is followed, with a clock that only the tests move."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.path = path
        self.reader = RowReader(TARGET)
        self.file = OutputFile(path, self.reader, lambda: self.now)
        self.found: list[float] = []
        self.positions: list[int] = []

    def poll(self) -> None:
        while rows := self.file.read():
            self._read(rows)

    def end(self, *, succeeded: bool = True) -> None:
        self.file.finish()
        self.poll()
        self._read(self.file.rest() if succeeded else ())

    def _read(self, rows: Sequence[tuple[int, bytes]]) -> None:
        for position, line in rows:
            evaluation = self.reader.read(line)
            if evaluation is not None:
                self.found.append(evaluation.metric)
                self.positions.append(position)


def rows(values: list[float], begin: int = 1) -> str:
    return "".join(f"{epoch},{value}\n" for epoch, value in enumerate(values, begin))


def replace(path: Path, text: str) -> None:
    other = path.with_suffix(".new")
    other.write_text(text)
    other.replace(path)


# How a script writes its rows: added to the file, or all of them again, in place or by another file.
WRITES = st.lists(st.sampled_from(["append", "in place", "replace", "poll", "half"]), max_size=12)


@pytest.mark.parametrize("keeps_earlier", [False, True])
@given(st.integers(0, 3), WRITES)
def test_each_row_of_a_run_counts_once_however_the_file_is_written(
    keeps_earlier: bool, earlier: int, writes: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.csv"
        before = [-0.1 * each for each in range(1, earlier + 1)]
        if before:
            path.write_text(HEAD + rows(before))
        followed, own = Followed(path), list[float]()
        base = HEAD + rows(before) if keeps_earlier else HEAD
        if not keeps_earlier or not before:
            path.write_text(base)
            followed.poll()
        for write in writes:
            if write != "poll":
                own.append(0.01 * (len(own) + 1))
            text = base + rows(own)
            if write == "append":
                path.write_text(text)
            elif write == "half":
                path.write_text(text[:-3])
                followed.poll()
                path.write_text(text)
            elif write == "in place":
                path.write_text("")
                followed.poll()
                path.write_text(text)
            elif write == "replace":
                replace(path, text)
            else:
                followed.poll()
        followed.end()
        assert followed.found == own
        assert followed.positions == sorted(set(followed.positions))


def test_a_file_that_begins_as_that_of_an_earlier_run_is_of_this_run_once_it_stays_shorter(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(HEAD + rows([0.5, 0.6, 0.7]))
    followed = Followed(path)
    path.write_text(HEAD + rows([0.5]))
    followed.poll()
    assert followed.found == []
    followed.now = DOUBT_SECONDS
    followed.poll()
    assert followed.found == [0.5]
    path.write_text(HEAD + rows([0.5, 0.6, 0.7, 0.8]))
    followed.poll()
    assert followed.found == [0.5, 0.6, 0.7, 0.8]


@pytest.mark.parametrize("shows_epochs", [True, False])
@pytest.mark.parametrize("is_seen_shorter", [True, False])
def test_rows_that_go_on_from_equal_ones_of_an_earlier_run_do_not_count_and_it_is_said_at_once(
    tmp_path: Path, shows_epochs: bool, is_seen_shorter: bool
) -> None:
    """A script wrote the rows of the run before again and one more, which was read as the first one: epoch 5."""
    path = tmp_path / "metrics.csv"
    head, earlier, more = (HEAD, rows([0.5, 0.51, 0.52, 0.54]), rows([0.6], 5))
    if not shows_epochs:
        head, earlier, more = "val_acc\n", "0.5\n0.51\n0.52\n0.54\n", "0.6\n"
    path.write_text(head + earlier)
    followed = Followed(path)
    if is_seen_shorter:
        path.write_text("")
        followed.poll()
    path.write_text(head + earlier + more)
    followed.poll()
    assert followed.found == []
    assert (
        "it is not known of which run it is: remove the file when the script starts" in followed.reader.reading.unread
    )
    # As another run begins, its epochs do too; so does a table with its head.
    path.write_text(head + earlier + more + head + "1,0.7\n"[0 if shows_epochs else 2 :])
    followed.poll()
    assert followed.found == [0.7]


def test_a_half_written_last_row_counts_only_after_a_good_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    for succeeded in (True, False):
        path.unlink(missing_ok=True)
        followed = Followed(path)
        path.write_text(f"{HEAD}1,0.5\n2,0.9")
        followed.poll()
        assert followed.found == [0.5]
        followed.end(succeeded=succeeded)
        assert followed.found == ([0.5, 0.9] if succeeded else [0.5])


def test_what_has_no_row_of_the_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    assert "No such file" in Followed(path).file.problem()
    os.mkfifo(path)
    assert "it is no regular file" in Followed(path).file.problem()
    path.unlink()
    path.write_text("")
    assert "is empty" in Followed(path).file.problem()
    path.write_text(HEAD + rows([0.5]))
    followed = Followed(path)
    followed.end()
    assert "was not written" in followed.file.problem()
    path.write_text(HEAD + rows([0.5]))
    os.utime(path, ns=(1, 1))
    followed.poll()
    assert followed.found == []
    assert "it is not known of which run it is" in followed.file.problem()
