"""Named pipes and devices among the files of a folder that a command reads: it waits for none and skips none."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.pipelines.measured_pipelines import PERSEUS
from support.test_sets.parameters import exhaustive_after
from wattloop.commands.main import main
from wattloop.errors import InputError
from wattloop.pipeline import Pipeline

BERT = "merak+bert-huge-uncased+custom:0,8,14,20,26+dp1+pp4+tp1+mbs8+nmb32"


def linked_pipe(path: Path) -> None:
    pipe = path.with_name(f"{path.name}.pipe")
    os.mkfifo(pipe)
    path.symlink_to(pipe)


KINDS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "named pipe": ("a named pipe", os.mkfifo),
    "link to a device": ("a device", lambda path: path.symlink_to("/dev/zero")),
    "link to a named pipe": ("a named pipe", linked_pipe),
}
special = pytest.mark.parametrize(("kind", "make"), exhaustive_after(KINDS.values(), usual=2))


def plans_with(folder: Path, make: Callable[[Path], None]) -> Path:
    """Two plans, and a special file that is named as a third."""
    folder.mkdir()
    for number in range(2):
        (folder / f"freqs_pipeline_{number:05d}.py").write_text("[[900, 900], [900, 900]]")
    hostile = folder / "freqs_pipeline_00002.py"
    make(hostile)
    return hostile


@special
def test_a_special_file_among_plans_is_neither_copied_nor_left_out(
    kind: str, make: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = plans_with(tmp_path / "plans", make)
    assert main(["plan", "sample", str(tmp_path / "plans"), str(tmp_path / "sampled"), "-n", "1"]) == 2
    said = capsys.readouterr().err
    assert str(hostile) in said
    assert kind in said
    assert not (tmp_path / "sampled").exists()


@special
def test_a_special_file_among_the_plans_of_a_pipeline_is_no_missing_plan(
    kind: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    hostile = plans_with(tmp_path / "plans", make)
    options: dict[str, Any] = {"stage": 0, "stages": 2, "microbatches": 1, "environment": {}}
    with pytest.raises(InputError, match=f"{hostile.name}.*it is {kind}"):
        Pipeline(plan=tmp_path / "plans", dumps=tmp_path / "runs", **options)


@special
def test_a_special_file_in_place_of_a_baselines_table_is_no_missing_baseline(
    kind: str, make: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(PERSEUS / "prof_sample", tmp_path / "perseus" / "A100" / "dp1+pp4+tp1" / f"{BERT}+PointSolution")
    tables = tmp_path / "zeus" / "csv" / "A100"
    tables.mkdir(parents=True)
    make(tables / "zeus_global.csv")
    assert main(["pipeline", "evaluate", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "zeus_global.csv" in said
    assert kind in said
