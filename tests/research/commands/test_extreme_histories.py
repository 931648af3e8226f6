"""Extreme numbers of a history are refused with their place, or every policy replays them to finite numbers."""

import csv
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.test_sets.parameters import exhaustive_after
from wattloop.commands.main import main

NUMBERS = ("1e308", "-0.0", "5e-324", "9.9e14", "1e15", "NaN", "Infinity", "-1")
EPOCHS = ("3", "5e-324", "1e-15", "9.9e14", "")
EPOCH_COSTS = ("", "1", "5e-324", "1e-15", "9.9e14")
HEADER = "recurrence,attempt,batch_size,cost_joules,reached,epochs,epoch_cost_joules\n"


# Each extreme number beside ordinary ones.
ONE_EXTREME = (
    *((number, "3", "1") for number in NUMBERS),
    *(("10", number, "1") for number in EPOCHS),
    *(("10", "3", number) for number in EPOCH_COSTS),
)


@pytest.mark.parametrize("policy", ["zeus", "thompsonSampling"])
@pytest.mark.parametrize(
    ("histories", "min_replayed"),
    exhaustive_after([(ONE_EXTREME, 8), (tuple(itertools.product(NUMBERS, EPOCHS, EPOCH_COSTS)), 20)]),
    ids=["one", "several together"],
)
def test_an_extreme_number_is_refused_with_its_place_or_every_decision_is_finite(
    policy: str,
    histories: Sequence[tuple[str, str, str]],
    min_replayed: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    history, output = tmp_path / "history.csv", tmp_path / "decisions.csv"
    replayed = 0
    for cost, epochs, epoch_cost in histories:
        rows = [f"0,0,8,{cost},1,{epochs},{epoch_cost}", f"1,0,16,{cost},1,3,1", f"2,0,8,10,0,1,{epoch_cost or 1}"]
        history.write_text(HEADER + "\n".join(rows) + "\n")
        sizes = ["--batch-sizes", "8,16,32", "--default-batch-size", "8"]
        code = main(["replay", "--policy", policy, "--history", str(history), *sizes, "--output", str(output)])
        written = capsys.readouterr()
        if code == 2:
            assert f"{history}: line " in written.err
            continue
        assert (code, written.err) == (0, ""), (cost, epochs, epoch_cost)
        replayed += 1
        cells = [cell for row in csv.DictReader(output.read_text().splitlines()) for cell in row.values()]
        assert not [cell for cell in cells if cell.lower() in {"nan", "inf", "-inf"}]
        numbers = [float(cell) for cell in cells if cell.replace(".", "").replace("-", "").replace("e", "").isdigit()]
        assert all(map(math.isfinite, numbers))
    assert replayed >= min_replayed
