"""A file appears whole or not at all."""

from __future__ import annotations

import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from wattloop.errors import CannotError
from wattloop.files.whole import bytes_written_whole, written_whole


def test_a_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    with written_whole(target) as stream:
        stream.write("größe\n")
        assert not target.exists()
    assert target.read_bytes() == "größe\n".encode()
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_a_file_stays_as_it_was_when_the_block_fails(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("before")
    with pytest.raises(ZeroDivisionError), written_whole(target) as stream:
        stream.write(str(1 / 0))
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_is_not_touched_when_the_writer_is_killed(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("before")
    code = (
        "import os, signal, sys\nfrom wattloop.files.whole import written_whole\n"
        "with written_whole(sys.argv[1]) as stream:\n    stream.write('half')\n    stream.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, target], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert target.read_text() == "before"


@pytest.mark.parametrize("where", ["missing/table.csv", "file/table.csv"])
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(CannotError, match="name a file in an existing, writable folder"),
        written_whole(tmp_path / where),
    ):
        pass


def test_a_full_disk_leaves_the_older_file(tmp_path: Path) -> None:
    # The limit on file sizes fails a write as a full disk does; SIGXFSZ is ignored by Python.
    target = tmp_path / "table.csv"
    target.write_text("before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(CannotError, match="cannot write: File too large"), bytes_written_whole(target) as stream:
            stream.write(b"x" * 200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with written_whole("-") as stream:
        stream.write("row\n")
    assert capsys.readouterr().out == "row\n"
