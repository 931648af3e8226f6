"""Each new target of `make fuzz` finds the defects that are planted into its part."""

from __future__ import annotations

import pytest

from support.fuzzing.campaign import open_target
from support.fuzzing.planted import DEFECTS, PlantedDefect, failing_input


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda each: f"{each.target}: {each.name}")
def test_a_planted_defect_is_found_and_its_input_passes_without_it(defect: PlantedDefect) -> None:
    target = open_target(defect.target)
    try:
        with defect.planted():
            data = failing_input(target)
        target.check(data)
    finally:
        target.close()
