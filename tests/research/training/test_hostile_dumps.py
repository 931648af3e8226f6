"""Files among the dumps that no rank wrote: one line says so, and the training ends as usual."""

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from support.instruction_stream import RankOfPipeline, SyntheticGpu
from support.test_sets.parameters import exhaustive_after
from wattloop.pipeline.plan_messages import Directive
from wattloop_research.training.run_dump import RunDump

RECORD = {
    "rank": 1,
    "iter_time": [1.0, 2.0],
    "iter_energy": [3.0, 4.0],
    "time_breakdown": {"forward": [[0.5], [0.5]]},
    "energy_breakdown": {"forward": [[], []]},
    "iterations": [0, 1],
}


def write_dumps(folder: Path) -> None:
    """Rank 0 writes two iterations of run 0."""
    dump, gpu = RunDump(folder, 0, lambda number: number), SyntheticGpu(1)
    for number in range(2):
        dump.add(gpu.run(RankOfPipeline(microbatches=2), number, 0, directive=Directive()))
    dump.collect(gpu.trace.now, lambda _begin, _end: 100.0, tuple)
    dump.close((), None)


def huge(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(100 * 1024**3)


def text(content: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(content)

    return write


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (text("[" * 200_000 + "]" * 200_000), "nested too deeply"),
        (
            lambda path: path.write_text("[" + "[]," * 9_000_000 + "[]]"),
            "expected a list with one object per rank in at most 512",
        ),
        (text("{}"), "found an object, expected a list with one object per rank"),
        (text("1" * 5_000), "a whole number of more than"),
        (lambda path: path.write_bytes(b"\xff"), "bytes that are not UTF-8"),
        (text(""), "invalid JSON"),
        (huge, "at most 67108864 bytes"),
        (os.mkfifo, "it is a named pipe"),
        (lambda path: path.mkdir(), "directory"),
    ],
)
@pytest.mark.parametrize("name", exhaustive_after(["0.prof.json", "0.sched.json"]))
def test_a_file_that_is_no_dump_is_left_as_it_is_and_one_warning_names_it(
    write: Callable[[Path], None], problem: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / name)
    found = (tmp_path / name).lstat()
    write_dumps(tmp_path)
    (record,) = caplog.records
    line = record.getMessage()
    assert line.startswith(f"run 0 of this rank is not in the dumps: {tmp_path / name}: ")
    assert problem in line
    assert "\n" not in line
    assert (tmp_path / name).lstat().st_ino == found.st_ino


NESTED: list[object] = []
for _ in range(400):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    "entry",
    [
        {**RECORD, "iterations": 5},
        {**RECORD, "iterations": [[0], [1]]},
        {**RECORD, "iterations": [0, 1, 2]},
        {**RECORD, "iter_time": [float("nan"), 1.0]},
        {**RECORD, "iter_energy": [10**400, 1.0]},
        {**RECORD, "iter_energy": None},
        {**RECORD, "time_breakdown": []},
        {**RECORD, "time_breakdown": {"forward": [NESTED, []]}},
        {**RECORD, "energy_breakdown": {"forward": [[1.0]]}},
        {**RECORD, "rank": 1e300},
        {**RECORD, "rank": True},
        {"rank": 1},
        [],
        "1",
    ],
)
def test_an_entry_of_another_form_is_replaced_by_those_of_the_ranks(entry: object, tmp_path: Path) -> None:
    (tmp_path / "0.prof.json").write_text(json.dumps([entry]))
    clocks = [entry, {"rank": 2, "power_states": NESTED}]
    (tmp_path / "0.sched.json").write_text(json.dumps(clocks))
    write_dumps(tmp_path)
    assert [each["rank"] for each in json.loads((tmp_path / "0.prof.json").read_text())] == [0]
    assert [each["rank"] for each in json.loads((tmp_path / "0.sched.json").read_text())] == [0]


def test_a_valid_entry_of_another_rank_is_joined(tmp_path: Path) -> None:
    (tmp_path / "0.prof.json").write_text(json.dumps([RECORD]))
    (tmp_path / "0.sched.json").write_text(
        json.dumps([{"rank": 1, "power_states": [1410], "instructions": [1], "more": NESTED}])
    )
    write_dumps(tmp_path)
    assert json.loads((tmp_path / "0.prof.json").read_text())[1] == RECORD
    assert json.loads((tmp_path / "0.sched.json").read_text())[1] == {"rank": 1, "power_states": [1410]}


def test_a_rank_whose_instructions_cannot_be_written_is_not_in_the_records_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "0.sched.json").write_text("{}")
    write_dumps(tmp_path)
    assert not (tmp_path / "0.prof.json").exists()


def test_on_a_full_disk_the_files_stay_as_they_are_and_one_warning_names_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "0.prof.json").write_text(json.dumps([RECORD]))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit on file sizes makes a write fail like a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        write_dumps(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (line,) = caplog.messages
    assert line.startswith(f"run 0 of this rank is not in the dumps: {tmp_path / '0.sched.json'}: cannot write: File")
    assert json.loads((tmp_path / "0.prof.json").read_text()) == [RECORD]
