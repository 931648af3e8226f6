"""The lease file: a read returns what was written, or detects corruption."""

import dataclasses
import os
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop_agent.durable_file import CorruptFileError
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.power_controller.lease import NAME, Lease, LeaseFile, lease_from_record
from wattloop_agent.refusals import Reason, RequestError

LEASE = Lease("GPU-1", GpuSetting.POWER_LIMIT, 300.0, 200.0, None, "process:1:2", "boot")
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
leases = st.builds(
    Lease,
    gpu=st.text(min_size=1, max_size=40),
    setting=st.sampled_from(GpuSetting),
    found=numbers,
    held=numbers,
    pending=numbers,
    owner=st.text(min_size=1, max_size=40),
    boot_id=st.text(min_size=1, max_size=40),
    expires_seconds=numbers,
    releasing=st.booleans(),
)


@given(leases)
def test_a_lease_survives_its_record(lease: Lease) -> None:
    assert lease_from_record(asdict(lease)) == lease


@pytest.mark.parametrize("field", ["gpu", "setting", "owner", "boot_id", "found", "held", "expires_seconds"])
@pytest.mark.parametrize("wrong", [[], {}, True, float("nan"), ""])
def test_a_record_with_an_invalid_field_is_refused(field: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        lease_from_record({**asdict(LEASE), field: wrong})


def test_what_was_written_last_is_read(tmp_path: Path) -> None:
    file = LeaseFile(tmp_path)
    assert file.read() == []
    second = dataclasses.replace(LEASE, gpu="GPU-2", held=None, pending=150.5)
    file.write([LEASE])
    file.write([LEASE, second])
    file.close()
    again = LeaseFile(tmp_path)
    assert again.read() == [LEASE, second]
    again.close()


def read_or_moved(folder: Path, file: LeaseFile) -> list[Lease] | None:
    try:
        return file.read()
    except CorruptFileError:
        for moved in folder.glob(f"{NAME}.corrupt-*"):
            moved.unlink()
        return None


def test_every_single_damaged_byte_is_noticed(tmp_path: Path) -> None:
    file = LeaseFile(tmp_path)
    file.write([LEASE])
    intact = (tmp_path / NAME).read_bytes()
    for position, byte in enumerate(intact):
        damaged = intact[:position] + bytes([byte ^ 1]) + intact[position + 1 :]
        (tmp_path / NAME).write_bytes(damaged)
        assert read_or_moved(tmp_path, file) in ([LEASE], None), f"byte {position} was read as something else"
    file.close()


@pytest.mark.parametrize("length", [0, 1, 10, 100, 300])
def test_a_truncated_file_is_moved_aside_once_and_the_next_read_is_clean(tmp_path: Path, length: int) -> None:
    file = LeaseFile(tmp_path)
    file.write([LEASE])
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CorruptFileError, match="not a valid lease file"):
        file.read()
    assert len((tmp_path / f"{NAME}.corrupt-0").read_bytes()) == length
    assert file.read() == []
    file.close()


@pytest.mark.parametrize(
    "content", ["[]", "{}", "null", '{"format": 2, "sha256": "", "leases": []}', "x" * 2_000_000, "[" * 100_000]
)
def test_a_file_of_another_kind_counts_as_corrupt(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    file = LeaseFile(tmp_path)
    with pytest.raises(CorruptFileError):
        file.read()
    file.close()


def test_a_folder_in_use_is_refused_to_a_second_agent(tmp_path: Path) -> None:
    first = LeaseFile(tmp_path)
    with pytest.raises(RequestError, match="another agent uses this state folder") as caught:
        LeaseFile(tmp_path)
    assert caught.value.reason is Reason.STATE_NOT_DURABLE
    first.close()
    LeaseFile(tmp_path).close()


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="must be writable"):
        LeaseFile(tmp_path / "file")


def test_a_full_disk_leaves_the_previous_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LeaseFile(tmp_path)
    file.write([LEASE])

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RequestError, match="No space left"):
            file.write([])
    assert file.read() == [LEASE]
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    file.close()


@pytest.mark.parametrize("writers", [0, 1], ids=["nobody writes into", "somebody has open"])
def test_a_pipe_in_its_place_does_not_block(tmp_path: Path, writers: int) -> None:
    os.mkfifo(tmp_path / NAME)
    ends = [os.open(tmp_path / NAME, os.O_RDWR) for _ in range(writers)]
    file = LeaseFile(tmp_path)
    with pytest.raises(CorruptFileError):
        file.read()
    assert (tmp_path / f"{NAME}.corrupt-0").is_fifo()
    file.write([LEASE])
    assert file.read() == [LEASE]
    file.close()
    for end in ends:
        os.close(end)


def test_a_folder_in_its_place_is_reported_and_leaves_no_file_open(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    file = LeaseFile(tmp_path)
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(3):
        with pytest.raises(RequestError, match="Is a directory"):
            file.read()
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    file.close()
