"""A file is replaced atomically or not at all."""

import os
import resource
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wattloop.errors import OperationError
from wattloop.files.atomic_write import open_atomic, open_atomic_bytes


def test_the_file_is_created_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    with open_atomic(target) as stream:
        stream.write("größe\n")
        assert not target.exists()
    assert target.read_bytes() == "größe\n".encode()
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_the_file_is_unchanged_when_the_block_fails(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("before")
    with pytest.raises(ZeroDivisionError), open_atomic(target) as stream:
        stream.write(str(1 / 0))
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_the_file_is_unchanged_when_the_writer_is_killed(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("before")
    code = (
        "import os, signal, sys\nfrom wattloop.files.atomic_write import open_atomic\n"
        "with open_atomic(sys.argv[1]) as stream:\n    stream.write('half')\n    stream.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, target], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert target.read_text() == "before"


@pytest.mark.parametrize("where", ["missing/table.csv", "file/table.csv"])
def test_an_unwritable_folder_is_an_error_that_names_it(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(OperationError, match="name a file in an existing, writable folder"),
        open_atomic(tmp_path / where),
    ):
        pass


def test_the_file_is_unchanged_when_the_disk_is_full(tmp_path: Path) -> None:
    # The limit on file sizes makes a write fail like a full disk; Python ignores SIGXFSZ.
    target = tmp_path / "table.csv"
    target.write_text("before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OperationError, match="cannot write: File too large"), open_atomic_bytes(target) as stream:
            stream.write(b"x" * 200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def device(path: Path, minor: int) -> Path:
    """A memory device: minor 3 is null, 7 is full."""
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, minor))
        path.open("wb").close()
    except PermissionError:
        pytest.skip("this user may not create a device here")
    return path


def test_a_device_remains_a_device(tmp_path: Path) -> None:
    null = device(tmp_path / "null", 3)
    with open_atomic(null) as stream:
        stream.write("row\n")
    assert stat.S_ISCHR(null.stat().st_mode)


def test_a_full_device_is_an_error(tmp_path: Path) -> None:
    full = device(tmp_path / "full", 7)
    with (
        pytest.raises(OperationError, match="full: cannot write: No space left on device"),
        open_atomic(full) as stream,
    ):
        stream.write("row\n")
    assert stat.S_ISCHR(full.stat().st_mode)


def test_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as threads:
        read = threads.submit(pipe.read_bytes)
        with open_atomic_bytes(pipe) as stream:
            stream.write(b"row")
        assert read.result() == b"row"
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1"])
def test_a_path_of_standard_output_is_written_in_place(name: str, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom wattloop.files.atomic_write import open_atomic\n"
        "with open_atomic(sys.argv[1]) as stream:\n    stream.write('row')\n"
    )
    with (tmp_path / "out").open("wb") as out:
        subprocess.run([sys.executable, "-c", code, name], stdout=out, check=True)
    assert (tmp_path / "out").read_bytes() == b"row"
    assert os.path.lexists(name)


def test_a_symbolic_link_remains_and_the_file_keeps_its_mode(tmp_path: Path) -> None:
    target, link = tmp_path / "table.csv", tmp_path / "latest.csv"
    target.write_text("before")
    target.chmod(0o600)
    link.symlink_to(target)
    with open_atomic(link) as stream:
        stream.write("after")
    assert link.is_symlink()
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("after", 0o600)


def test_a_dash_writes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with open_atomic("-") as stream:
        stream.write("row\n")
    assert capsys.readouterr().out == "row\n"
