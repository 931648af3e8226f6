"""Which processes on a GPU are others, by the files of Linux about processes."""

import os
import subprocess
from pathlib import Path

import pytest

from support.forked_process import exit_codes, forked
from wattloop.gpus.gpu_processes import MPS_SERVER, PARTIAL_LIST, TRAINING_VARIABLE, listed_process, others_among
from wattloop_operator.local import watchdog

NOBODY = 65534

OWN = 700
RANK_VARIABLES = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


def process(
    folder: Path, pid: int, parent: int = 1, name: str = "python", *, has_gpu: bool = True, **variables: str
) -> None:
    """A process with its parent and the variables that it began with."""
    own = folder / str(pid)
    (own / "fd").mkdir(parents=True)
    (own / "stat").write_text(f"{pid} ({name}) S {parent} {pid} {pid}\n")
    (own / "environ").write_bytes(b"\0".join(f"{key}={value}".encode() for key, value in variables.items()))
    (own / "fd" / "3").symlink_to("/dev/nvidia0" if has_gpu else "/dev/null")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    process(tmp_path, 1, 0, "init", has_gpu=False)
    process(tmp_path, 600, name="bash", has_gpu=False)
    return tmp_path


@pytest.mark.parametrize(
    ("parent", "name", "own", "other", "is_other"),
    [
        (600, "python", {}, {}, True),
        # The kernel's name of a program may hold anything.
        (600, "a) R 700 (b", {}, {}, True),
        (OWN, "python", {}, {}, False),
        (600, MPS_SERVER, {}, {}, False),
        (1, "python", {TRAINING_VARIABLE: "run/one"}, {TRAINING_VARIABLE: "run/one"}, False),
        (1, "python", {TRAINING_VARIABLE: "run/one"}, {TRAINING_VARIABLE: "run/two"}, True),
        (1, "python", {"RANK": "0", **RANK_VARIABLES}, {"RANK": "1", **RANK_VARIABLES}, False),
        (1, "python", {"RANK": "0", **RANK_VARIABLES}, {"RANK": "1", **RANK_VARIABLES, "MASTER_PORT": "1"}, True),
        # Variables that a user exports for all programs make no ranks of them.
        (1, "python", {"MASTER_PORT": "29500"}, {"MASTER_PORT": "29500"}, True),
    ],
)
def test_relatives_and_processes_of_the_same_training_are_a_programs_own(
    parent: int, name: str, own: dict[str, str], other: dict[str, str], is_other: bool, folder: Path
) -> None:
    process(folder, OWN, 600, **own)
    process(folder, 800, parent, name, **other)
    names, unknown = others_among([OWN, 800, 999], OWN, is_complete=True, folder=folder)
    assert names == ((f"process 800 ({name})",) if is_other else ())
    assert unknown == ""


def test_the_process_that_started_a_program_and_descendants_of_descendants_are_its_own(folder: Path) -> None:
    process(folder, 650, 600, "notebook")
    process(folder, OWN, 650)
    process(folder, 701, OWN, "launcher", has_gpu=False)
    process(folder, 702, 701)
    assert others_among([650, OWN, 702], OWN, is_complete=True, folder=folder) == ((), "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root knows of a process that another user owns")
def test_a_process_that_has_ended_is_no_other(folder: Path) -> None:
    process(folder, OWN, 600)
    assert others_among([OWN, 2**22 - 1], OWN, is_complete=True, folder=folder) == ((), "")


@pytest.mark.skipif(os.getuid() != 0, reason="another user's process needs root")
def test_a_process_of_another_user_that_has_ended_and_was_not_waited_for_is_no_other(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    try:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)

        def looked_at_by_another_user() -> int:
            os.setuid(NOBODY)
            return 0 if listed_process(ended.pid) is None else 1

        assert exit_codes([forked(looked_at_by_another_user, tmp_path / "out", tmp_path / "error")]) == [0]
    finally:
        ended.wait()


@pytest.mark.parametrize(
    ("pids", "others"),
    [
        # Only its own, or none: others may be there all the same.
        ([OWN], ()),
        ([], ()),
        # A process that holds a GPU and is not related.
        ([OWN, 800], ("process 800 (python)",)),
        # Ids of the host, which are nothing or another process here.
        ([4711], ()),
        ([4711, 600], ()),
        ([4711, 4712, 4713], ("1 more than this program has",)),
    ],
)
def test_in_a_container_others_may_be_seen_and_that_there_are_none_never_is(
    pids: list[int], others: tuple[str, ...], folder: Path
) -> None:
    process(folder, OWN, 600)
    process(folder, 701, OWN)
    process(folder, 800, 600)
    assert others_among(pids, OWN, is_complete=False, folder=folder) == (others, PARTIAL_LIST)


def test_the_watchdog_which_imports_no_package_knows_trainings_by_the_same_variable() -> None:
    assert watchdog.TRAINING_VARIABLE == TRAINING_VARIABLE
