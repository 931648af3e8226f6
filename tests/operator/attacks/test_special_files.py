"""Named pipes and devices among the files of an output folder, which a run opens: it waits for none."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.test_sets.parameters import exhaustive_after
from wattloop.errors import UsageError
from wattloop_operator.local.output_folder import OutputFolder

FILES = ("agent.log", "recurrences.csv", "logs/digits-00001-1795900055-0.log", "cost.png", "wattloop.db")


@pytest.mark.parametrize("name", exhaustive_after(FILES, usual=3))
@pytest.mark.parametrize(
    ("kind", "make"), [("a named pipe", os.mkfifo), ("a device", lambda path: path.symlink_to("/dev/zero"))]
)
def test_a_special_file_in_an_output_folder_is_refused_before_it_is_opened(
    name: str, kind: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    with OutputFolder.locked(tmp_path, {}):
        pass
    make(tmp_path / name)
    with pytest.raises(UsageError, match=f"{name}: found {kind}"), OutputFolder.locked(tmp_path, {}):
        pytest.fail("the run began")
